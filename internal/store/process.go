package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	registerScript       = rdb.NewScript(Lua, "register", "lib/base", "lib/records", "lib/grace", "lib/relock", "lib/place", "register")
	unregisterScript     = rdb.NewScript(Lua, "unregister", "lib/base", "lib/records", "lib/limits", "lib/place", "lib/forget_process", "unregister")
	beatScript           = rdb.NewScript(Lua, "beat", "lib/base", "lib/records", "lib/grace", "lib/relock", "beat")
	restoreWorkersScript = rdb.NewScript(Lua, "restore_workers", "lib/base", "restore_workers")
	mirrorScript         = rdb.NewScript(Lua, "mirror", "lib/base", "mirror")
)

// Register gives a worker process its lease and shows its threads as workers.
func (s *Store) Register(ctx context.Context, r Registration) error {
	args := []any{s.db.Prefix, r.Proc, s.opts.Load().Lease.Milliseconds(), s.opts.Load().BeatEvery.Milliseconds(), r.Started, len(r.Workers), rand.Text(), rdb.Known().Writes, strings.TrimSpace(r.Info[InfoVersion] + " on " + r.Info[infoHost])}
	args = with(args, r.Workers...)
	info := formatted(r.Info)
	info[infoLease] = strconv.FormatInt(s.opts.Load().Lease.Milliseconds(), 10)
	info[infoBeat] = strconv.FormatInt(s.opts.Load().BeatEvery.Milliseconds(), 10)
	raw, err := s.db.Eval(ctx, registerScript, s.db.Key(keyProcs), append(args, pairs(info)...))
	if err != nil {
		return err
	}
	id, _ := raw.(string)
	s.dataSet.Store(&id)
	return nil
}

// Unregister removes a process without jobs. It returns how many jobs the process still holds; if any, it
// changes nothing.
func (s *Store) Unregister(ctx context.Context, proc string) (held int, err error) {
	raw, err := s.db.Eval(ctx, unregisterScript, s.db.Key(rdb.KeyInflight)+proc, []any{s.db.Prefix, proc})
	return int(rdb.Number(raw)), err
}

// Running is one job of a beat.
type Running struct {
	Token, LockKey string
	// Held: the job holds class locks in this Redis.
	Held bool
}

// WorkerStat counts a thread's jobs since the last beat.
type WorkerStat struct {
	Worker            string
	Processed, Failed int
}

// BeatRequest extends the lease of a process and the locks of its jobs.
type BeatRequest struct {
	Proc  string
	Jobs  []Running
	Info  map[string]string
	Stats []WorkerStat
	// Look are a few worker ids of the process, to check that they are still registered.
	Look []string
}

// Beat extends the lease of a process and its locks. It revives an expired lease unless the process was
// recovered; then it returns ErrFenced, and the process must end. It returns ErrWiped if the server has lost
// all data since the registration: then the process may register again.
func (s *Store) Beat(ctx context.Context, b BeatRequest) (BeatReply, error) {
	args := []any{
		s.db.Prefix, b.Proc, s.opts.Load().Lease.Milliseconds(), s.opts.Load().BeatEvery.Milliseconds(),
		seconds(s.opts.Load().LockTTL), len(b.Jobs), len(b.Info), len(b.Stats), s.registeredIn(), len(b.Look),
	}
	for _, j := range b.Jobs {
		args = append(args, j.Token, j.LockKey, rdb.Flag(j.Held))
	}
	args = append(args, pairs(b.Info)...)
	for _, w := range b.Stats {
		args = append(args, w.Worker, w.Processed, w.Failed)
	}
	list, err := s.db.EvalList(ctx, beatScript, s.db.Key(keyProcs), with(args, b.Look...), 1, 5)
	switch {
	case err != nil:
		return BeatReply{}, err
	case len(list) == 1 && list[0] == "WIPED":
		return BeatReply{}, ErrWiped
	case len(list) == 1:
		return BeatReply{}, ErrFenced
	}
	return BeatReply{Lost: list.Texts(1), Gone: list.Texts(2), Left: list.Texts(3), Missing: list.Number(4) == 1}, nil
}

// Enrollment is the input of Enroll.
type Enrollment struct {
	Proc, Started string
	Threads       []EnrolledThread
	// Queues are the queues of jobs in hand: failures may be kept by queue.
	Queues []string
}

// EnrolledThread is one thread, with its totals.
type EnrolledThread struct {
	WorkerStat
	// Token is the job in hand; "" = none.
	Token string
}

// Enroll restores registrations of threads that others have removed, and removes the failures that these have
// recorded for them, if they are among the last thousand. It returns the numbers of these threads, and how many
// failures it removed.
func (s *Store) Enroll(ctx context.Context, e Enrollment) (again []int, unfailed int, err error) {
	args := []any{s.db.Prefix, e.Proc, e.Started, len(e.Threads)}
	for _, t := range e.Threads {
		args = append(args, t.Worker, t.Processed, t.Failed, t.Token)
	}
	args = append(args, keyFailed)
	for _, q := range e.Queues {
		args = append(args, q+"_failed")
	}
	list, err := s.db.EvalList(ctx, restoreWorkersScript, s.db.Key(keyWorkers), args, 2)
	if err != nil {
		return nil, 0, err
	}
	numbers, _ := list[0].([]any)
	for _, n := range numbers {
		again = append(again, int(rdb.Number(n)))
	}
	return again, int(list.Number(1)), nil
}

// Records returns the existing, valid in-flight records of a process.
func (s *Store) Records(ctx context.Context, proc string, tokens []string) ([]Reserved, error) {
	values, err := s.db.Read.HMGet(ctx, s.db.Key(rdb.KeyInflight)+proc, tokens...).Result()
	if err != nil {
		return nil, fmt.Errorf("read in-flight records of %s: %w", proc, err)
	}
	var records []Reserved
	for i, value := range values {
		if text, ok := value.(string); ok {
			if r, err := ParseRecord(tokens[i], text); err == nil {
				records = append(records, r)
			}
		}
	}
	return records, nil
}

// HoldsJobLock reports whether a job still holds its lock.
func (s *Store) HoldsJobLock(ctx context.Context, key, proc, token string) (bool, error) {
	value, err := s.db.Read.Get(ctx, key).Result()
	if err != nil && !rdb.IsNil(err) {
		return false, fmt.Errorf("read job lock %q: %w", key, err)
	}
	return value == (HeldLock{Proc: proc, Token: token}).owner(), nil
}

func (s *Store) registeredIn() string {
	if id := s.dataSet.Load(); id != nil {
		return *id
	}
	return ""
}

// Mirror is a running job's entry for Ruby's pages.
type Mirror struct {
	Token, Worker string
	// Value is the JSON of worker:<id>; see wire.Running.
	Value []byte
}

// WriteMirrors shows jobs that have been running for a moment under worker:<id>. Their completions must say Mirrored,
// whatever it returns. On a full server it does nothing.
func (s *Store) WriteMirrors(ctx context.Context, proc string, mirrors []Mirror) error {
	args := []any{s.db.Prefix}
	for _, m := range mirrors {
		args = append(args, m.Token, m.Worker, m.Value)
	}
	_, err := s.db.Eval(ctx, mirrorScript, s.db.Key(rdb.KeyInflight)+proc, args)
	if rdb.Refusal(err) == "OOM" {
		return nil
	}
	return err
}

func pairs(m map[string]string) []any {
	out := make([]any, 0, 2*len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name, m[name])
	}
	return out
}
