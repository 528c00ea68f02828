// Package master is the parent of the worker processes. It fills its slots with them, passes on
// the operator's orders, replaces used-up and dead ones, and cleans up after them in Redis. It
// runs no job and holds no lock.
//
// One loop, in Run, owns all state; everything else reports to it over channels.
//
//	starting ──first worker ready──▶ running ⇄ paused
//	    └──────────────┬───────────────┴────────┘
//	               draining ──▶ killing ──▶ gone
//
// Files: master.go the loop; config.go and deps.go its inputs; worker.go a worker process;
// slot.go filling the slots; ahead.go early successors; memory.go too large processes; apart.go
// jobs that run alone; poller.go the choice of the poller; signals.go signals; reap.go, oom.go
// and sweep.go the end of a worker process; reload.go a new configuration; upgrade.go and
// takeover.go a new program version; recover.go, policy.go and recoverer.go jobs of dead
// processes; clock.go Redis's clock; repair.go unique queues; status.go what people see.
package master

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

const (
	// killMargin is how much longer than the jobs' grace the master waits before it ends a
	// worker process.
	killMargin = 250 * time.Millisecond
	// silence is how long a worker process may be silent if locks last long enough.
	silence = 3 * proc.BeatEvery
	// roundEvery is how often the recoverer looks for dead processes of other masters.
	roundEvery = 5 * time.Second
	// straysAfter is the delay from a child's end to a look for strays: most ended children are
	// worker processes.
	straysAfter = time.Second
	// lastTries bounds how long a master without workers waits for Redis to accept what they
	// left.
	lastTries = 10 * time.Second
	// briefTries replaces lastTries if they left only registrations.
	briefTries = 2 * time.Second
	// secondLook is how long to wait once more for a seemingly silent process, if locks last
	// long enough.
	secondLook = time.Second / 2
	// lateLoop: a loop that wakes up this late was stopped, or its machine was. Its workers'
	// silence then proves nothing.
	lateLoop = time.Second
)

// ErrWorkerConfig means that a worker process could not use its configuration (exit code 78)
// before any was ready, so starting another one is useless.
var ErrWorkerConfig = errors.New("a worker process cannot use the configuration")

// configExit is that exit code.
const configExit = 78

// Master keeps worker processes running.
type Master struct {
	cfg Config
	d   Deps
	log *zap.Logger

	state signals.State
	since time.Time
	// startAs is the state after starting: running or paused.
	startAs signals.State
	err     error // what Run returns
	over    *overrun

	slots   []*slot
	workers map[*worker]bool
	poller  *worker       // polls at every interval; nil while all are busy
	booting *worker       // at most one at a time, to avoid a boot storm
	lead    time.Duration // how long starts take
	seq     int           // worker processes spawned
	gen     int           // number of the configuration in force
	gens    int           // configurations read
	done    int           // jobs of dead worker processes

	recycling recycling
	// ends counts how processes have ended, for people.
	ends      store.ProcEnds
	swollenAt time.Time // when the log last said that max_rss is too low

	apart  apart
	roll   *roll
	reread rereading
	// refused is why the last reload or upgrade had no effect; "" if it succeeded.
	refused string
	handing *handing // a new master replacing this one; nil = none
	taking  *taking  // the old master that this one replaces; nil = none
	peers   chan heard

	work    context.Context // ends with Run
	helpers sync.WaitGroup

	recoverer   *recoverer
	repairer    *repairer
	round       *round
	roundAt     time.Time
	answers     map[string]answered // to orders, by id
	unrecovered map[string]bool     // dead processes; true = only the registration is left
	lastTry     time.Time           // since when only Redis is awaited

	straysAt time.Time // when to look for strays
	told     told
	oom      oomWatch
	watchdog time.Duration
	messages chan said
	exits    chan exited
	children sync.WaitGroup

	// now and wake are valid for one turn of the loop; see due.
	now, wake time.Time
}

// overrun is the result of a drain that took too long; set in Master.over.
type overrun struct {
	cause   string // why the jobs were ended, for their records
	requeue bool   // they go back to their queues; otherwise they fail
}

// New checks cfg and returns a master that has done nothing yet.
func New(cfg Config, d Deps) (*Master, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	m := &Master{
		cfg: cfg, d: d, log: d.Log, state: signals.Starting, startAs: signals.Running,
		workers: map[*worker]bool{}, unrecovered: map[string]bool{}, answers: map[string]answered{},
		messages: make(chan said), exits: make(chan exited),
		reread: rereading{result: make(chan reread, 1)}, peers: make(chan heard),
	}
	for n := range cfg.Slots {
		m.slots = append(m.slots, &slot{number: n})
	}
	m.recoverer, m.repairer = newRecoverer(d), newRepairer(d)
	return m, nil
}

// Run keeps the slots filled until it is told to leave, or until every worker process has left
// because nothing is left to do (until-empty). Then it returns nil, and ErrWorkerConfig if no
// worker process can run. The end of ctx acts like TERM.
//
// Call it on the program's main goroutine, because it spawns.
func (m *Master) Run(ctx context.Context) error {
	m.since, m.watchdog = time.Now(), m.d.Notifier.WatchdogInterval()
	var stop context.CancelFunc
	m.work, stop = context.WithCancel(context.WithoutCancel(ctx))
	m.helpers.Go(func() { m.recoverer.run(m.work) })
	m.helpers.Go(func() { m.repairer.run(m.work) })
	m.greet()
	m.loop(ctx)
	stop()
	m.partFromPeers()
	m.children.Wait()
	m.helpers.Wait()
	m.dropStarted()
	m.farewell()
	return m.err
}

func (m *Master) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		m.turn()
		if m.finished() {
			return
		}
		timer.Reset(time.Until(m.wake))
		rounds, round := m.nextRound()
		select {
		case sig := <-m.d.Signals:
			m.onSignal(sig)
		case s := <-m.messages:
			m.onWorkerMessage(s)
		case e := <-m.exits:
			m.reap(e)
		case rounds <- round:
			m.round = nil
		case r := <-m.recoverer.reports:
			m.recovered(r)
		case o := <-m.recoverer.orders:
			m.execute(o)
		case r := <-m.reread.result:
			m.reloaded(r)
		case r := <-m.d.Requests:
			m.requested(r)
		case h := <-m.peers:
			m.onPeer(h)
		case <-m.d.Look:
			m.roundAt = m.now
		case <-timer.C:
		case <-ended:
			ended = nil
			m.log.Info("told to stop")
			m.enter(signals.Killing, "the program ends")
		}
	}
}

// turn does everything that is due, before each wait of the loop.
func (m *Master) turn() {
	expected := m.wake
	m.now, m.wake = time.Now(), time.Now().Add(time.Hour)
	if !expected.IsZero() && m.now.Sub(expected) > lateLoop {
		m.log.Warn("the master was held up; giving its workers time", zap.Duration("late", m.now.Sub(expected)))
		for w := range m.workers {
			w.health.heard = m.now
		}
	}
	m.giveSlots()
	m.countFilled()
	m.fill()
	m.isolate()
	m.enforce()
	m.post()
	m.hurryRound()
	if m.roundAt.IsZero() || m.due(m.roundAt) {
		m.roundAt = m.now.Add(roundEvery*9/10 + rand.N(roundEvery/5))
		m.due(m.roundAt)
		m.straysAt = m.now
		m.oom.note(m.d.System.OOMKills())
		m.askRound()
	}
	if m.due(m.straysAt) {
		m.straysAt = time.Time{}
		m.d.System.ReapStrays(m.owns)
	}
	m.tell()
}

// due reports whether t has come. If not, it makes the loop wake up at t at the latest. The zero
// time never comes.
func (m *Master) due(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	if !t.After(m.now) {
		return true
	}
	if t.Before(m.wake) {
		m.wake = t
	}
	return false
}

// enforce ends worker processes that have exceeded a limit.
func (m *Master) enforce() {
	if m.state == signals.Draining && m.cfg.DrainTimeout > 0 && m.due(m.since.Add(m.cfg.DrainTimeout)) {
		m.log.Warn("the drain took too long", zap.Duration("drain_timeout", m.cfg.DrainTimeout))
		m.over = &overrun{fmt.Sprintf("drain_timeout (%s) was over while it ran", m.cfg.DrainTimeout), m.cfg.DrainRequeue}
		m.enter(signals.Killing, "drain_timeout is over")
	}
	for w := range m.workers {
		switch {
		case w.kill.sent:
		case m.due(w.kill.by):
			m.kill(w, "it did not leave in time after its jobs were killed")
		case m.due(w.orders.answerBy):
			if w.orders.answered >= w.orders.given {
				w.orders.answerBy = time.Time{} // it makes sure that its jobs stop
				continue
			}
			m.kill(w, "it has not answered since its jobs were to be killed")
		case w.readyAt.IsZero() && m.due(w.bootsSince().Add(m.cfg.BootTimeout)):
			m.kill(w, fmt.Sprintf("it was not ready after %s", m.cfg.BootTimeout))
		case !w.readyAt.IsZero() && m.due(m.silentUntil(w)) && m.due(m.doubt(w)):
			m.kill(w, fmt.Sprintf("no sign of life for %s", m.now.Sub(w.health.heard).Round(time.Millisecond)))
		}
	}
}

// doubt returns how long to wait once more for w, which has been silent for too long: its
// messages may be unread if this loop was stopped.
func (m *Master) doubt(w *worker) time.Time {
	if !w.health.doubted.After(w.health.heard) {
		w.health.doubted = m.now
	}
	return w.health.doubted.Add(min(secondLook, m.cfg.LockDuration/40))
}

// silentUntil is how long w may be silent. It must end before w's job locks expire, because
// commands of a hung or stopped worker process keep running. A process that reports takes care
// of its locks itself, even while Redis is away.
func (m *Master) silentUntil(w *worker) time.Time {
	until := w.health.heard.Add(m.cfg.BeatTimeout)
	if w.health.lockEnd.IsZero() {
		return until
	}
	locks := w.health.heard.Add(w.patience())
	if w.health.lockEnd.After(locks) {
		locks = w.health.lockEnd
	}
	if locks.Before(until) {
		return locks
	}
	return until
}

// bootsSince is when w's start began. Waiting for Redis does not count: starting another process
// would not help, and all of them would wait when Redis is back.
func (w *worker) bootsSince() time.Time {
	if w.health.outage != nil {
		return w.health.heard
	}
	return w.spawnedAt
}

// patience is how long a worker process may be silent although its locks are about to expire. If
// it was stopped right after a report, it sent its last beat at most 2/7 of a lock's duration
// earlier. So with 23/35 it is gone before the 33rd.
func (w *worker) patience() time.Duration {
	lock := w.cfg.LockDuration
	return min(silence, max(lock*6/35, min(lock*23/35, silence/2)))
}

// leaving reports whether no more worker processes are started.
func (m *Master) leaving() bool {
	return m.state == signals.Draining || m.state == signals.Killing
}

// finished reports whether nothing is left to do or to wait for.
func (m *Master) finished() bool {
	if len(m.workers) > 0 || !m.leaving() && !m.empty() {
		m.lastTry = time.Time{}
		return false
	}
	if m.elderEnds() {
		return false
	}
	if len(m.unrecovered) == 0 {
		return true
	}
	if m.lastTry.IsZero() {
		m.lastTry = m.now
	}
	patience := briefTries
	for _, light := range m.unrecovered {
		if !light {
			patience = lastTries
		}
	}
	return m.due(m.lastTry.Add(patience))
}

// empty reports whether every worker process has left because nothing was left to do.
func (m *Master) empty() bool {
	return !slices.ContainsFunc(m.slots, func(s *slot) bool { return !s.closed })
}

func (m *Master) owns(pid int) bool {
	for w := range m.workers {
		if w.child.PID() == pid {
			return true
		}
	}
	return false
}
