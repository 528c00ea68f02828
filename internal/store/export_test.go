package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // as script.go
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ParseRecord reads an in-flight record.
var ParseRecord = parseRecord

// Blocking makes a connection one whose reads and writes block.
var Blocking = blocking

// Patient gives a server more time to answer than a daemon does: the Lua of a miniredis
// is slow, on a busy machine and with the race detector more than that.
func Patient(s *Store) {
	for _, client := range []redis.UniversalClient{s.read, s.write} {
		if c, ok := client.(*redis.Client); ok {
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		}
	}
}

// LeaveSifting leaves a sifting as one does that is killed: so many records have passed.
func LeaveSifting(ctx context.Context, s *Store, list string, records int) error {
	f := s.sifting(list)
	if _, _, err := f.call(ctx, "begin"); err != nil {
		return err
	}
	for ; records > 0; records-- {
		page, err := s.read.LRange(ctx, s.key(list), 0, 0).Result()
		if err != nil {
			return err
		}
		if answer, _, err := f.call(ctx, "step", 1, page[0]); err != nil || answer != "OK" {
			return fmt.Errorf("step: %s: %w", answer, err)
		}
	}
	return nil
}

// NearEnd has a store sift lists of failures that are longer than that.
func NearEnd(s *Store, n int64) {
	opts := *s.opts.Load()
	opts.nearEnd = n
	s.opts.Store(&opts)
}

// Alter makes a store run its scripts with changes to one file of lua/ or lua/lib/, for as long as
// the store lives: from, to, from, to. What is to be changed must occur exactly once.
func Alter(s *Store, file string, fromTo ...string) error {
	text, err := luaFiles.ReadFile("lua/lib/" + file + ".lua")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = luaFiles.ReadFile("lua/" + file + ".lua")
	}
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
	s.write.AddHook(&alteration{from: string(text), to: changed, names: map[string]string{}})
	return nil
}

// alteration sends other scripts than it was given.
type alteration struct {
	from, to string

	mu    sync.Mutex
	names map[string]string // the SHA-1 of a script: that of what is run in its place
}

func (a *alteration) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "evalsha":
			// One that is not known yet is answered by NOSCRIPT, and comes whole then.
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
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as script.go
	return hex.EncodeToString(sum[:])
}

// Intercept lets f answer the transactions of a store, or send them.
func Intercept(s *Store, f func(cmds []redis.Cmder, send func() error) error) {
	s.write.AddHook(interception(f))
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

// Probed are the scripts that a probe runs.
func Probed(ctx context.Context, s *Store) []string {
	return s.rehearse(ctx).names
}

// ScriptCommands are all commands that occur in scripts. They are looked for once: the
// model asks thousands of times.
var ScriptCommands = sync.OnceValue(scriptCommands)
