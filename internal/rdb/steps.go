package rdb

import (
	"context"
	"fmt"
	"strings"
)

// Step is one check of a server.
type Step struct {
	// Name is connection, version, role, eviction or rights.
	Name string
	// Detail is the finding; empty with an Err.
	Detail string
	Err    error
}

// Steps makes the checks of WaitReady once, up to the first failure that makes the rest meaningless. A
// check passes if the server does not report the property.
func (c *Client) Steps(ctx context.Context, r Rehearsal) (steps []Step) {
	add := func(name, detail string, err error) bool {
		if err != nil {
			detail = ""
		}
		steps = append(steps, Step{Name: name, Detail: detail, Err: err})
		return err == nil
	}
	if err := c.Ping(ctx); !add("connection", c.Where()+" answers", err) {
		return steps
	}
	info, _ := c.Read.Info(ctx, "server").Result() // "" if unknown
	version, err := InfoField(info, "redis_version"), error(nil)
	if n, unknown := majorVersion(info); unknown == nil && n < minVersion {
		err = fmt.Errorf("%s is too old: resqued needs %d.0 or newer", version, minVersion)
	}
	if !add("version", said(version), err) {
		return steps
	}
	if !add("role", "takes writes", c.checkRole(ctx)) {
		return steps
	}
	memory, _ := c.Read.Info(ctx, "memory").Result()
	policy := InfoField(memory, "maxmemory_policy")
	if InfoField(memory, "maxmemory") == "0" {
		policy = strings.TrimSpace(policy + ", maxmemory has no limit")
	}
	add("eviction", said(policy), c.CheckEviction(ctx))
	detail := "every script runs"
	err = c.probe(ctx, r, "")
	if Refusal(err) == "OOM" { // as in WaitReady: it can be drained
		detail, err = "not tried: the server's memory is full", nil
	}
	add("rights", detail, err)
	return steps
}

func said(text string) string {
	if text == "" {
		return "the server does not say"
	}
	return text
}
