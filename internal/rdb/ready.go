package rdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// minVersion is the oldest server where scripts may write after reading the clock.
const minVersion = 5

// errReplica: the server is a read-only replica.
var errReplica = errors.New("a read-only replica: redis_url must name the primary, or this server become one")

// WaitReady returns when the server is ready, or with an error that waiting does not fix: a wrong
// password, a missing right, a server that is too old or may evict jobs, keys in a format that this
// program does not read, or scripts of r that do not run. Before each wait it calls tell, if not nil,
// with the reason.
func (c *Client) WaitReady(ctx context.Context, r Rehearsal, tell func(err error, wait time.Duration)) error {
	wait := 100 * time.Millisecond
	for {
		err := c.check(ctx, r)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !Unreachable(err) && !Waitable(err) {
			return err
		}
		pause := wait/2 + time.Duration(rand.Int64N(int64(wait)))
		if tell != nil {
			tell(err, pause)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		wait = min(wait*2, 5*time.Second)
	}
}

func (c *Client) check(ctx context.Context, r Rehearsal) error {
	if err := c.Ping(ctx); err != nil {
		return fmt.Errorf("redis at %s: %w", c.Where(), err)
	}
	info, _ := c.Read.Info(ctx, "server").Result() // "" if unknown
	if n, err := majorVersion(info); err == nil && n < minVersion {
		return fmt.Errorf("redis at %s is version %s: resqued needs %d.0 or newer", c.Where(), InfoField(info, "redis_version"), minVersion)
	}
	if err := c.checkRole(ctx); err != nil {
		return err
	}
	if err := c.CheckEviction(ctx); err != nil {
		return err
	}
	if err := c.CheckFormat(ctx); err != nil {
		return err
	}
	err := c.probe(ctx, r, r.mark(info))
	if Refusal(err) == "OOM" {
		return nil // a full server cannot be probed, but drained
	}
	return err
}

func majorVersion(info string) (int, error) {
	major, _, _ := strings.Cut(InfoField(info, "redis_version"), ".")
	return strconv.Atoi(major)
}

// checkRole rejects a replica. A server that does not report its role passes.
func (c *Client) checkRole(ctx context.Context) error {
	text, err := c.Read.Info(ctx, "replication").Result()
	if err != nil || InfoField(text, "role") != "slave" || InfoField(text, "slave_read_only") == "0" {
		return nil //nolint:nilerr // no answer is not a reason to refuse
	}
	err = fmt.Errorf("redis at %s is %w", c.Where(), errReplica)
	c.demotions.seen.Add(1) // a name or a proxy may lead elsewhere next time
	return err
}

// CheckEviction returns an error if the server may evict queued jobs, unless Options.AllowEviction is
// set. A server that does not report its policy (no right to INFO, another implementation) passes.
func (c *Client) CheckEviction(ctx context.Context) error {
	text, err := c.Read.Info(ctx, "memory").Result()
	if err != nil || c.opts.Load().AllowEviction {
		return nil //nolint:nilerr // no answer is not a reason to refuse
	}
	limit, policy := InfoField(text, "maxmemory"), InfoField(text, "maxmemory_policy")
	if limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return fmt.Errorf("redis at %s may evict jobs: maxmemory is %s and maxmemory-policy %q; "+
			"set it to noeviction, or allow_eviction: true to take the risk", c.Where(), limit, policy)
	}
	return nil
}

// InfoField returns a field of INFO's output, or "".
func InfoField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Waitable reports whether err is an answer that a server gives during its start, during a failover, or
// until its disk or replicas are repaired.
func Waitable(err error) bool {
	switch Refusal(err) {
	case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "ERR max number of clients":
		return true
	}
	return errors.Is(err, errReplica)
}
