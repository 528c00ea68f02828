package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// ProcLoad is the load of a worker process of resqued.
type ProcLoad struct {
	Proc    string
	Threads int
	Running int64
}

// ProcLoads returns the load of the worker processes, without reading their jobs.
func (s *Store) ProcLoads(ctx context.Context) ([]ProcLoad, error) {
	procs, err := s.db.Read.ZRange(ctx, s.db.Key(keyProcs), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list processes (%s): %w", s.db.Key(keyProcs), err)
	}
	out := make([]ProcLoad, len(procs))
	threads, running := make([]*redis.StringCmd, len(procs)), make([]*redis.IntCmd, len(procs))
	err = s.readEach(ctx, len(procs), func(pipe redis.Pipeliner, i int) {
		threads[i] = pipe.HGet(ctx, s.db.Key(keyProcInfo)+procs[i], "threads")
		running[i] = pipe.HLen(ctx, s.db.Key(rdb.KeyInflight)+procs[i])
	})
	if err != nil {
		return nil, fmt.Errorf("read processes: %w", err)
	}
	for i, proc := range procs {
		n, _ := strconv.Atoi(threads[i].Val())
		out[i] = ProcLoad{Proc: proc, Threads: n, Running: running[i].Val()}
	}
	return out, nil
}

// Heads returns the first payload of each queue, or of its first line if all its jobs wait in lines; nil if it
// is empty or not a list.
func (s *Store) Heads(ctx context.Context, queues []string) ([][]byte, error) {
	heads := make([]*redis.StringCmd, len(queues))
	err := s.readEach(ctx, len(queues), func(pipe redis.Pipeliner, i int) {
		heads[i] = pipe.LIndex(ctx, s.db.QueueKey(queues[i]), 0)
	})
	if err != nil {
		return nil, fmt.Errorf("read the heads of queues: %w", err)
	}
	out := make([][]byte, len(queues))
	for i, head := range heads {
		if raw, err := head.Bytes(); err == nil {
			out[i] = raw
			continue
		}
		if head.Err() != redis.Nil { //nolint:errorlint // it is not wrapped
			continue
		}
		if lined, err := s.linePayloads(ctx, queues[i], 0, 1); err == nil && len(lined) > 0 {
			out[i] = []byte(lined[0])
		}
	}
	return out, nil
}

// Others counts the workers of other programs, how many jobs they may run at a time, and how many workers say
// that they are busy.
func (s *Store) Others(ctx context.Context) (n, threads int, busy int64, err error) {
	workers, err := s.WorkerList(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	n, threads, busy = CountOthers(workers)
	return n, threads, busy, nil
}

// CountOthers counts the same in a list of workers.
func CountOthers(workers []WorkerInfo) (n, threads int, busy int64) {
	for _, w := range workers {
		if w.Name.Ours {
			continue
		}
		n, threads = n+1, threads+max(1, w.Name.Processes*w.Name.Threads)
		if w.Working != "" {
			busy++
		}
	}
	return n, threads, busy
}

// FailureCount returns the number of failure records in all lists. It fails if a key has the wrong type.
func (s *Store) FailureCount(ctx context.Context) (n int64, err error) {
	_, lengths, err := s.failureLengths(ctx)
	for _, length := range lengths {
		if length.Err() != nil {
			return 0, fmt.Errorf("count failures (%v): %w", length.Args()[1], length.Err())
		}
		n += length.Val()
	}
	return n, err
}

// FailureSizes returns FailureLists with the number of records of each list. A key of the wrong type has none.
func (s *Store) FailureSizes(ctx context.Context) (lists []string, sizes []int64, err error) {
	lists, lengths, err := s.failureLengths(ctx)
	sizes = make([]int64, len(lists))
	for i, length := range lengths {
		sizes[i/2] += length.Val()
	}
	return lists, sizes, err
}

// failureLengths returns FailureLists with the lengths of the two keys of each list.
func (s *Store) failureLengths(ctx context.Context) (lists []string, lengths []*redis.IntCmd, err error) {
	if lists, err = s.FailureLists(ctx); err != nil {
		return nil, nil, err
	}
	lengths = make([]*redis.IntCmd, 2*len(lists))
	err = s.readEach(ctx, len(lengths), func(pipe redis.Pipeliner, i int) {
		key := s.db.Key(lists[i/2])
		if i%2 == 1 {
			key = s.db.Key(keyPassed) + lists[i/2]
		}
		lengths[i] = pipe.LLen(ctx, key)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("count failures: %w", err)
	}
	return lists, lengths, nil
}

// readEach sends n commands in batches. Errors of a single command, such as a key of the wrong type, are left to its
// result.
func (s *Store) readEach(ctx context.Context, n int, add func(pipe redis.Pipeliner, i int)) error {
	const batch = 1000
	for from := 0; from < n; from += batch {
		pipe := s.db.Read.Pipeline()
		for i := from; i < min(n, from+batch); i++ {
			add(pipe, i)
		}
		if err := told(pipe.Exec(ctx)); err != nil && (rdb.Unreachable(err) || rdb.Refusal(err) == "NOPERM" || ctx.Err() != nil) {
			return err
		}
	}
	return nil
}

// told sets the error of a pipeline in its commands if they have none: if a connection cannot be prepared, as
// with a wrong password, go-redis does not set it.
func told(cmds []redis.Cmder, err error) error {
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return err
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
	return err
}
