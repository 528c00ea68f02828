package workerproc

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// parts are what several parts share, for the test of one of them.
type parts struct {
	cfg      Config
	id       identity
	deps     Deps
	life     *life
	master   *sent
	link     *link
	troubles *troubles
	alarm    *alarm
	lease    *lease
	beatNow  bell
	jobs     jobs
	logged   *observer.ObservedLogs
	exits    atomic.Int64
}

// setup returns the shared parts of a running process with two threads.
func setup(t *testing.T) *parts {
	t.Helper()
	queues, _, err := selector.Parse([]string{"q"}, 2)
	require.NoError(t, err)
	core, logged := observer.New(zap.DebugLevel)
	log := zap.New(core)
	s := &parts{
		cfg: Config{Threads: 2, Queues: queues, TermTimeout: time.Second, LockDuration: 35 * time.Second}.withDefaults(),
		id:  identity{proc: "p", master: "m", slots: 1}, life: newLife(), master: &sent{}, alarm: newAlarm(),
		beatNow: newBell(), jobs: jobs{}, logged: logged,
	}
	s.life.state, s.life.started = signals.Running, time.Now()
	s.deps = Deps{Conn: s.master, Stats: silent{}, Log: log, Exit: func() { s.exits.Add(1) }, Handlers: classes{}}
	s.troubles = newTroubles(log)
	s.link = newLink(s.master, log, s.troubles)
	s.lease = newLease(s.cfg.LockDuration, nil)
	s.lease.renewed = procfs.BootTime()
	return s
}

// job puts a job in hand.
func (s *parts) job(token string) *job {
	j := &job{begun: time.Now()}
	j.Token, j.Queue, j.handled = token, "q", true
	j.claim.Init("p", token, s.alarm.ring)
	j.ctx.parent = neverEnding
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
