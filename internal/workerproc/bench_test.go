package workerproc_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/workerproc"
)

// endless is a Redis that costs next to nothing and has a job for every request until a number
// of jobs were taken.
type endless struct {
	store.Store
	left  atomic.Int64
	calls int
}

func (e *endless) Register(context.Context, store.Registration) error { return nil }
func (e *endless) Unregister(context.Context, string) (int, error)    { return 0, nil }
func (e *endless) DelayedQueues(context.Context) ([]string, error)    { return nil, nil }
func (e *endless) MoveDue(context.Context, string, func(string) bool) (store.Due, error) {
	return store.Due{}, nil
}
func (e *endless) DropKills(context.Context, string, ...string) error         { return nil }
func (e *endless) WriteMirrors(context.Context, string, []store.Mirror) error { return nil }

func (e *endless) Kills(context.Context, string) (map[string]store.KillRequest, error) {
	return nil, nil
}

func (e *endless) Beat(context.Context, store.BeatRequest) (store.BeatReply, error) {
	return store.BeatReply{}, nil
}

func (e *endless) Records(context.Context, string, []string) ([]store.Reserved, error) {
	return nil, nil
}

func (e *endless) Poll(context.Context, store.PollRequest) (store.PollReply, error) {
	if e.left.Load() <= 0 {
		return store.PollReply{}, nil
	}
	return store.PollReply{Reasons: store.Reasons{"q": store.Free}}, nil
}

func (e *endless) Exchange(_ context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	e.calls++
	r := store.ExchangeReply{Applied: make([]bool, len(req.Completions)), Jobs: make([]store.Reserved, 0, len(req.Wants))}
	for i := range r.Applied {
		r.Applied[i] = true
	}
	for _, w := range req.Wants {
		n := e.left.Add(-1)
		if n < 0 {
			break
		}
		r.Jobs = append(r.Jobs, store.Reserved{
			Token: w.Token, Worker: w.Worker, Queue: "q", LockKey: "resque:locket:job_locks:Noop", Fence: 1, StartedAt: time.UnixMilli(1e12),
			Payload: []byte(`{"class":"Noop","args":[` + strconv.FormatInt(n, 10) + `,"a subject of some length"]}`),
		})
	}
	return r, nil
}

// BenchmarkJobs measures the cost of a job in a worker process without Redis.
func BenchmarkJobs(b *testing.B) {
	for _, threads := range []int{1, 10, 50} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) { benchmarkJobs(b, threads) })
	}
}

func benchmarkJobs(b *testing.B, threads int) {
	type args struct {
		N    int64
		Text string
	}
	h := resqued.New()
	resqued.Handle(h, "Noop", func(context.Context, args) error { return nil })
	set, err := handler.New(h, handler.Options{})
	require.NoError(b, err)
	locks, err := classlock.New(classlock.Config{Classes: set.Classes(), Class: set.Lookup, Log: zap.NewNop()})
	require.NoError(b, err)
	defer locks.Close()
	queues, _, err := selector.Parse([]string{"q"}, threads)
	require.NoError(b, err)
	m := &master{down: make(chan proc.Message, 8), up: make(chan proc.Message, 64)}
	e := &endless{}
	e.left.Store(int64(b.N))
	p, err := workerproc.New(workerproc.Config{
		Threads: threads, Queues: queues, UntilEmpty: true, Interval: time.Millisecond, Host: "some-host", PID: os.Getpid(),
	}, workerproc.Deps{
		Store: e, Conn: m, Handlers: set, Stats: noStats{}, Signals: make(chan os.Signal), Log: zap.NewNop(),
		Runner: &thread.Runner{Performer: set, Locker: locks, Describe: handler.Describe}, Exit: func() {},
	})
	require.NoError(b, err)
	m.down <- proc.Message{Type: proc.Welcome, Proc: "some-host:" + strings.Repeat("0", 36) + ":1-1:0.1", Slots: 2, State: "running"}
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, p.Run(b.Context()))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(e.calls), "jobs/call")
	m.die()
}
