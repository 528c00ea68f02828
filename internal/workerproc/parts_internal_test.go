package workerproc

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// parts are what several parts share, for the test of one of them.
type parts struct {
	*shared
	master *sent
	logged *observer.ObservedLogs
	exits  atomic.Int64
}

// setup returns the shared parts of a running process with two threads.
func setup(t *testing.T) *parts {
	t.Helper()
	queues, _, err := selector.Parse([]string{"q"}, 2)
	require.NoError(t, err)
	core, logged := observer.New(zap.DebugLevel)
	s := &parts{master: &sent{}, logged: logged}
	s.shared = newShared(
		Config{Threads: 2, Queues: queues, TermTimeout: time.Second, LockDuration: 35 * time.Second}.withDefaults(),
		Deps{
			Conn: s.master, Stats: silent{}, Log: zap.New(core), Exit: func() { s.exits.Add(1) }, Handlers: classes{},
			SetTitle: func(string) {},
		})
	s.id = identity{proc: "p", master: "m", slots: 1}
	s.life.state, s.life.started = signals.Running, time.Now()
	s.lease.renewed = procfs.BootTime()
	return s
}

// exchanges returns exchanges without lanes, with idle threads that are not started.
func (s *parts) exchanges() *exchanges {
	x := newExchanges(s.shared)
	x.threads = newThreads(neverEnding, s.shared, x, &counted{shared: s.shared})
	return x
}

// unsettled makes exchanges have an end to send.
func unsettled(x *exchanges, token string) {
	x.add(store.Completion{Job: &store.Reserved{Token: token}})
}

// job puts a job in hand.
func (s *parts) job(token string) *job {
	j := &job{begun: time.Now()}
	j.Token, j.Queue, j.handled = token, "q", true
	j.claim.Init("p", token, s.alarm.ring)
	j.ctx, j.end = context.WithCancelCause(neverEnding)
	s.jobs[token] = j
	return j
}

// told returns the types of the messages to the master since the last call.
func (s *parts) told() (types []string) {
	for _, m := range *s.master {
		types = append(types, m.Type)
	}
	*s.master = nil
	return types
}

// rings reports whether a bell was rung, and resets it.
func rings(b bell) bool {
	select {
	case <-b:
		return true
	default:
		return false
	}
}
