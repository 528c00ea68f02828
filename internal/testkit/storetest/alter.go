// Package storetest is shared by the tests of scripts in several packages: a Redis for sequences
// of random steps, a view of all that it holds, and defects that such tests have to find.
package storetest

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
)

// Patient gives a server more time to answer than a daemon does: a miniredis runs Lua slowly, on
// a busy machine with the race detector even more so.
func Patient(c *rdb.Client) {
	for _, client := range []rdb.Conn{c.Read, c.Write} {
		if c, ok := client.(*redis.Client); ok {
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		}
	}
}

// source returns the text of a file of lua/ or lua/lib/.
func source(file string) ([]byte, error) {
	for _, files := range []fs.FS{rdb.Lua, store.Lua, longstore.Lua} {
		for _, folder := range []string{"lua/lib/", "lua/"} {
			if text, err := fs.ReadFile(files, folder+file+".lua"); err == nil {
				return text, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no script %s.lua", file)
}

// Alter makes a client run its scripts with changes to one file of lua/ or lua/lib/, as long as
// the client lives: from, to, from, to. Each from must occur exactly once.
func Alter(c *rdb.Client, file string, fromTo ...string) error {
	text, err := source(file)
	if err != nil {
		return err
	}
	changed := string(text)
	for pair := range slices.Chunk(fromTo, 2) {
		if n := strings.Count(changed, pair[0]); n != 1 {
			return fmt.Errorf("%s.lua has %d places with %q", file, n, pair[0])
		}
		changed = strings.Replace(changed, pair[0], pair[1], 1)
	}
	c.Write.AddHook(&alteration{from: string(text), to: changed, names: map[string]string{}})
	return nil
}

// alteration replaces scripts that are sent.
type alteration struct {
	from, to string

	mu    sync.Mutex
	names map[string]string // SHA-1 of a script to that of its replacement
}

func (a *alteration) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "evalsha":
			// An unknown script is answered by NOSCRIPT, and then sent whole.
			sha, _ := args[1].(string)
			args[1] = a.name(sha)
		case "eval":
			source, _ := args[1].(string)
			changed := strings.Replace(source, a.from, a.to, 1)
			a.learn(source, changed)
			args[1] = changed
		}
		return next(ctx, cmd)
	}
}

func (a *alteration) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *alteration) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *alteration) name(sha string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name, ok := a.names[sha]; ok {
		return name
	}
	return strings.Repeat("0", len(sha))
}

func (a *alteration) learn(source, changed string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[scriptName(source)] = scriptName(changed)
}

func scriptName(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// Intercept lets f answer a client's transactions or send them.
func Intercept(c *rdb.Client, f func(cmds []redis.Cmder, send func() error) error) {
	c.Write.AddHook(interception(f))
}

type interception func(cmds []redis.Cmder, send func() error) error

func (f interception) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f interception) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f interception) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		send := func() error { return next(ctx, cmds) }
		if cmds[0].Name() != "multi" { // what a connection begins with
			return send()
		}
		return f(cmds, send)
	}
}
