package rdb

import (
	"context"
	"crypto/sha1" //nolint:gosec // as script.go
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	missingRightsScript = NewScript(Lua, "missing_rights", "missing_rights")
	runUncachedScript   = NewScript(Lua, "run_uncached", "run_uncached")
)

// ProbeSpace follows the namespace in the keys of a Probe.
const ProbeSpace = ":resqued:probe"

// errRehearsed ends a call whose script was only queued.
var errRehearsed = errors.New("rehearsed")

// Rehearsal is the input of a Probe: every script of some packages, once.
type Rehearsal struct {
	// Files hold the scripts of these packages, as for NewScript.
	Files []fs.FS
	// Play calls each script. The scripts of c are only queued, on keys in a separate
	// namespace, and all calls return an error.
	Play func(ctx context.Context, c *Client)
	// Remains are the keys, without the namespace, that outlive Play.
	Remains []string
}

// Part is another package's addition to a Rehearsal.
type Part struct {
	Files fs.FS
	// Play calls each script of the package while a job is in flight as run.
	Play    func(ctx context.Context, c *Client, run RunName)
	Remains []string
}

// rehearsal collects scripts that run as one transaction.
type rehearsal struct {
	pipe  redis.Pipeliner
	names []string
}

func (r *rehearsal) add(ctx context.Context, sc *Script, keys []string, args []any) {
	r.pipe.Eval(ctx, runUncachedScript.Source(), keys, append([]any{sc.Source()}, args...)...)
	r.names = append(r.names, sc.Name)
}

// Queue adds plain commands to a rehearsal, under a name for messages. Only Rehearsal.Play may call
// it.
func (c *Client) Queue(name string, add func(pipe redis.Pipeliner)) {
	r := c.rehearsed
	add(r.pipe)
	for range r.pipe.Len() - len(r.names) {
		r.names = append(r.names, name)
	}
}

// Probe runs every script once, on separate keys under resqued:probe. It thereby finds a missing right,
// or an incompatible server, before that can lose a job. It is one transaction and leaves nothing
// behind, except two small cached scripts of its own.
func (c *Client) Probe(ctx context.Context, r Rehearsal) error { return c.probe(ctx, r, "") }

// metaProbed is the field of KeyMeta for scripts that a server has run: the server's id, and the sums of
// the last versions' scripts, newest first. Versions side by side must not forget each other's, or
// each start would run all scripts.
const (
	metaProbed = "probes"
	maxProbed  = 4
)

// families has a key of each kind that resqued writes outside resqued:. Scripts check their rights with
// one key only, so the user needs them for all.
var families = []string{
	"queues", "queue:probe", "failed", "probe_failed", "failed_queues", "workers", "worker:probe", "stat:processed", "stat:failed",
	"locket:job_locks:probe", "locket:queue_lock_counters", "lock:probe", "loner:probe", "resque-retry:probe", "failure-resque-retry:probe",
	"pause:all", "pause-all-workers", "delayed:0", "delayed_queue_schedule", "timestamps:probe", "persistent_schedules", "schedules_changed",
}

// probe is Probe. Running all scripts blocks the server, so scripts that it has run before are skipped:
// mark identifies scripts and server, and is stored if the namespace is in use. "" = always run.
func (c *Client) probe(ctx context.Context, r Rehearsal, mark string) error {
	commands := r.Commands()
	asked := []any{len(commands)}
	for _, name := range commands {
		asked = append(asked, name)
	}
	for _, name := range families {
		asked = append(asked, c.Key(name))
	}
	raw, err := c.Eval(ctx, missingRightsScript, c.Key("resqued:probe"), asked)
	if err != nil {
		return c.refusedRights(err)
	}
	if missing := Texts(raw); len(missing) > 0 {
		what := "run " + strings.Join(missing, ", ") + " on keys of " + c.Prefix + "*"
		if strings.HasPrefix(missing[0], c.Prefix) { // commands come first
			what = "write " + strings.Join(missing, ", ")
		}
		return fmt.Errorf("redis at %s: the user may not %s; docs/redis-keys.md lists the rights that resqued needs", c.Where(), what)
	}
	known := ""
	if mark != "" {
		known = c.Write.HGet(ctx, c.Key(KeyMeta), metaProbed).Val()
	}
	marks, ran := withMark(known, mark)
	if mark != "" && ran {
		// This reports whether the server accepts writes, as running them would.
		return c.refusedRights(c.Write.HSet(ctx, c.Key(KeyMeta), metaProbed, marks).Err())
	}
	if err := c.runAll(ctx, r); err != nil || mark == "" {
		return err
	}
	if c.Write.Exists(ctx, c.Key(KeyMeta)).Val() > 0 {
		c.Write.HSet(ctx, c.Key(KeyMeta), metaProbed, marks) // if this fails, they run once more
	}
	return nil
}

// withMark adds a mark to the known ones, and reports whether it was among them. Marks of another
// server are dropped.
func withMark(known, mark string) (marks string, ran bool) {
	server, sum, _ := strings.Cut(mark, " ")
	sums := []string{server, sum}
	for i, old := range strings.Fields(known) {
		switch {
		case i == 0 && old != server:
			return mark, false
		case i == 0:
		case old == sum:
			ran = true
		case len(sums) <= maxProbed:
			sums = append(sums, old)
		}
	}
	return strings.Join(sums, " "), ran
}

func (c *Client) runAll(ctx context.Context, r Rehearsal) error {
	var names []string
	var replies []redis.Cmder
	err := c.Once(ctx, func() error {
		play := c.rehearse(ctx, r)
		names = play.names
		var err error
		replies, err = play.pipe.Exec(ctx)
		return err
	})
	for i, reply := range replies {
		why := reply.Err()
		switch {
		case why == nil, errors.Is(why, redis.Nil), redis.HasErrorPrefix(why, "EXECABORT") && Refusal(why) == "": // another reply has the reason
		case Refusal(why) != "", Unreachable(why), i >= len(names):
			return c.refusedRights(why)
		default:
			return fmt.Errorf("script %s does not run on redis at %s: %w", names[i], c.Where(), why)
		}
	}
	return c.refusedRights(err)
}

// Rehearsed returns the names of the scripts that a Probe runs.
func (c *Client) Rehearsed(ctx context.Context, r Rehearsal) []string {
	return c.rehearse(ctx, r).names
}

// rehearse queues what a Probe runs, after the removal of what an interrupted one left behind.
func (c *Client) rehearse(ctx context.Context, r Rehearsal) *rehearsal {
	queued := &rehearsal{pipe: c.Write.TxPipeline()}
	play := &Client{Prefix: strings.TrimSuffix(c.Prefix, ":") + ProbeSpace + ":", Read: c.Read, rehearsed: queued}
	play.opts.Store(c.opts.Load())
	remains := make([]string, len(r.Remains))
	for i, name := range r.Remains {
		remains[i] = play.Key(name)
	}
	queued.pipe.Del(ctx, remains...)
	queued.names = append(queued.names, "clear")
	r.Play(ctx, play)
	queued.pipe.Del(ctx, remains...)
	return queued
}

// mark identifies a rehearsal's scripts and the server with this INFO. It is "" if the server cannot be
// asked for rights, so that only running the scripts shows them, and in a cluster, where another node
// may have run them.
func (r *Rehearsal) mark(info string) string {
	id := InfoField(info, "run_id")
	if n, err := majorVersion(info); err != nil || n < 7 || id == "" || InfoField(info, "redis_mode") == "cluster" {
		return ""
	}
	return id + " " + r.sum()
}

func (r *Rehearsal) sum() string {
	sum := sha1.New() //nolint:gosec // it tells programs apart, no more
	for _, text := range r.sources() {
		_, _ = sum.Write(text) // into memory
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (r *Rehearsal) sources() (texts [][]byte) {
	for _, files := range append([]fs.FS{Lua}, r.Files...) {
		for _, pattern := range []string{"lua/lib/*.lua", "lua/*.lua"} {
			names, _ := fs.Glob(files, pattern) // the pattern is well-formed
			for _, name := range names {
				text, err := fs.ReadFile(files, name)
				if err != nil {
					panic(err) // embedded
				}
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// refusedRights adds the server's address to err, and the documentation of rights to a NOPERM.
func (c *Client) refusedRights(err error) error {
	switch {
	case err == nil:
		return nil
	case Refusal(err) == "NOPERM":
		return fmt.Errorf("redis at %s: %w; docs/redis-keys.md lists the rights that resqued needs", c.Where(), err)
	default:
		return fmt.Errorf("redis at %s: %w", c.Where(), err)
	}
}

// Commands returns all commands in the scripts, sorted.
func (r *Rehearsal) Commands() []string {
	var names []string
	for _, text := range r.sources() {
		names = append(names, commandsIn(text)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
