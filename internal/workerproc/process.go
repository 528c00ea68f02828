// Package workerproc is one worker process: M threads, the loop that ends and
// reserves their jobs, the heartbeat, and how it pauses, drains, kills and leaves.
//
// One goroutine, Run's, owns all state. Threads, the exchangers, the poller and
// the heart are goroutines that it starts and waits for; they get their work over
// channels and answer over channels. The states are those of package signals:
//
//	starting → running ⇄ paused → retiring / draining → gone
//	                any of them → killing → gone
//
// A process whose master says that it is Alone takes one job that may have killed its
// process, and leaves.
//
// Files: deps.go what a process is given; process.go the loop; control.go what master and operator want;
// poll.go finding jobs, waker.go at once; lane.go and exchange.go reserving and ending them; job.go a job in
// hand; kill.go the kill; requests.go the kill of one job that somebody asked for;
// beat.go leases and reports; ahead.go the successor; suspects.go jobs that have to run alone; leave.go the
// end.
package workerproc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// tickEvery is how often the loop looks at what only time changes: running jobs
// to mirror, deadlines, age and memory.
const tickEvery = 250 * time.Millisecond

// mirrorAfter is how long a job runs before Ruby's pages are told of it.
const mirrorAfter = time.Second

// ErrFenced: another process has recovered this one's jobs, because its lease was
// past. It must end without touching them.
var ErrFenced = errors.New("this process has been given up for dead: its lease was past")

// Process is one worker process.
type Process struct {
	cfg  Config
	d    Deps
	log  *zap.Logger
	name proc.Message // the master's welcome: Proc, Slot, Slots

	state   signals.State
	since   time.Time // when state was entered
	started time.Time

	threads  []*slot
	byWorker map[string]int
	looked   int             // threads whose registration was looked for
	idle     []int           // threads that have no job, and none was asked for
	jobs     map[string]*job // in hand, by token
	ended    []store.Completion
	// stuck are those that Redis could not take because of a key of the wrong type,
	// stuckSince since when, by token.
	stuck      []stuckEnd
	stuckSince map[string]time.Time
	lanes      []*lane
	brief      bool               // the last job that has ended took less than briefly
	fresh      bool               // all jobs in hand have begun in this step
	spare      []store.Completion // memory for ended
	digits     []byte             // memory for tokens
	// killed are tokens of killed jobs whose end has not reached Redis yet.
	killed     map[string]bool
	kills      int // messages that told to kill jobs
	stuckTried time.Time
	// hungry: the next exchange should ask for jobs. retries counts the immediate
	// repetitions of a scan that was cut short.
	hungry     bool
	retries    int
	waiting    []string // queues with jobs, as of the last complete poll
	names      []store.LockName
	queues     []store.Queue // those to try
	polled     bool          // a first pass is complete
	begun      int           // jobs started, for the quota
	done       int
	sequence   int
	leftovers  []string      // tokens that the last beat has told of; see suspectLeftovers
	empty      bool          // left because everything is empty
	wanted     signals.State // the state to enter when the start is over
	asked      bool          // the master knows that age or memory is used up
	weighed    int           // done when memory was looked at last, at weighedAt
	weighedAt  time.Time
	taintedAt  time.Time
	wakeAt     time.Time // when the loop will look at deadlines, see wake
	partedAt   time.Time // when all that keeps a tainted process was what has ended
	drainEnds  time.Time
	doneAt     time.Time // when a drain had nothing left but what has ended; see leaveUnrecorded
	unmastered bool      // the master is gone
	aloneSince time.Time // when the master and the last job were gone
	complained map[string]time.Time
	// away is since when neither looks nor beats get through; zero while they do.
	away  time.Time
	fatal error
	// lastBeat is the boot time at which the last successful beat was sent;
	// registeredAt that of the registration, written by its goroutine.
	lastBeat, registeredAt time.Duration

	registration store.Registration // made at the start, not changed after

	beating  bool
	beatSoon bool // when the beat that is under way is over
	leaving  bool
	asking   bool // for requests to kill a job
	askedAt  time.Time
	strays   []string // tokens of requests for jobs that are not in hand
	showed   bool     // the last beat named jobs that were told to stop
	hurry    func()   // bounds a leaving that waits for Redis; nil before it began

	messages  chan proc.Message
	outcomes  chan outcome
	exchanged chan exchangeResult
	polls     chan pollResult
	pollNow   chan struct{}
	pollMode  atomic.Int32
	sends     atomic.Int64 // exchanges sent
	lookout   atomic.Bool  // the master's word: look at every interval
	unarmed   atomic.Bool  // the waker wants to know when the loop is calm
	calm      chan struct{}
	turned    chan struct{} // what the waker may do has changed
	worked    atomic.Int64  // when the process was last stirred, since started
	apart     apart
	skippable int       // how many queues come before that of the job that was taken last
	passed    int       // queues that exchanges have looked at in vain since they were resolved
	foundAt   time.Time // when the master was last told of more jobs
	ahead     ahead
	beats     chan beatCall
	beaten    chan beatResult
	left      chan error
	nudged    chan struct{}
	changed   func() // nudge
	beatNow   chan struct{}
	asks      chan []string // tokens of requests that hit nobody
	requested chan requests
	stats     []store.WorkerStat
	// totals are those of earlier beats.
	totals []store.WorkerStat

	// leaves is closed when jobs should know that the process wants to leave.
	leaves    chan struct{}
	leaveOnce sync.Once

	work     context.Context // ends when the process gives up on everything
	stopWork context.CancelFunc
	helpers  sync.WaitGroup
}

// New checks cfg and returns a process that has done nothing yet.
func New(cfg Config, d Deps) (*Process, error) {
	if cfg.Threads < 1 {
		return nil, fmt.Errorf("%d threads: a worker process needs one at least", cfg.Threads)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 100 * time.Millisecond
	}
	if cfg.TermTimeout <= 0 {
		cfg.TermTimeout = 30 * time.Second
	}
	if cfg.LockDuration <= 0 {
		cfg.LockDuration = store.DefaultLease
	}
	if cfg.BeatEvery <= 0 {
		cfg.BeatEvery = store.DefaultBeatEvery
	}
	if cfg.Locketed == nil {
		cfg.Locketed = func(string) bool { return true }
	}
	if cfg.Unique == nil {
		cfg.Unique = func(string) bool { return false }
	}
	if d.SetTitle == nil {
		d.SetTitle = proc.SetTitle
	}
	p := &Process{
		cfg: cfg, d: d, log: d.Log, state: signals.Starting,
		jobs: map[string]*job{}, hungry: true,
		messages: make(chan proc.Message), outcomes: make(chan outcome, cfg.Threads),
		exchanged: make(chan exchangeResult, lanes), polls: make(chan pollResult, 1), pollNow: make(chan struct{}, 1),
		calm: make(chan struct{}, 1), turned: make(chan struct{}, 1),
		asks: make(chan []string, 1), requested: make(chan requests, 1),
		beats: make(chan beatCall, 1), beaten: make(chan beatResult, 1),
		left: make(chan error, 1), nudged: make(chan struct{}, 1), beatNow: make(chan struct{}, 1), complained: map[string]time.Time{},
		killed: map[string]bool{}, stuckSince: map[string]time.Time{}, byWorker: map[string]int{},
		wanted: signals.Running, leaves: make(chan struct{}),
	}
	p.changed = p.nudge
	return p, nil
}

// Run greets the master, works jobs until the process shall leave, and leaves. It
// returns nil after an orderly end. A job that ignores its kill makes it call
// Deps.Exit instead of returning.
func (p *Process) Run(ctx context.Context) error {
	p.work, p.stopWork = context.WithCancel(resqued.WithLeaving(ctx, p.leaves))
	defer p.helpers.Wait()
	defer p.stopWork()
	p.started, p.since = time.Now(), time.Now()

	if err := p.greet(); err != nil {
		return err
	}
	if err := p.boot(); err != nil {
		if p.state != signals.Killing && p.state != signals.Draining {
			return err
		}
		return nil // told to go before it was up: nothing is held, nothing to say
	}
	p.startHelpers()
	return p.loop()
}

func (p *Process) startHelpers() {
	p.threads = make([]*slot, p.cfg.Threads)
	p.stats, p.totals = make([]store.WorkerStat, p.cfg.Threads), make([]store.WorkerStat, p.cfg.Threads)
	for i := range p.threads {
		id := p.workerID(i)
		s := &slot{worker: id, brief: wire.BriefWorkerID(id), assigned: make(chan *job, 1)}
		p.threads[i] = s
		p.stats[i].Worker = s.worker
		p.byWorker[s.brief] = i
		p.idle = append(p.idle, i)
		// Not awaited: a handler that never returns must not keep the process.
		go p.perform(s)
	}
	p.startLanes()
	p.helpers.Go(p.poller)
	p.helpers.Go(p.heart)
	p.helpers.Go(p.requester)
}

// loop is the only code that touches the process's state once it is up.
func (p *Process) loop() error {
	defer func() {
		for _, s := range p.threads {
			close(s.assigned)
		}
	}()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ticking := true
	report := time.NewTicker(proc.ReportEvery(p.cfg.LockDuration))
	defer report.Stop()
	beat := time.NewTicker(p.cfg.BeatEvery)
	defer beat.Stop()

	p.stir()
	p.look() // also one that waits for its turn: then it need not look any more
	p.step()
	for {
		select {
		case sig := <-p.d.Signals:
			p.obey(sig)
		case m, ok := <-p.messages:
			p.heed(m, ok)
		case o := <-p.outcomes:
			p.finish(o)
			p.moreOutcomes()
		case r := <-p.exchanged:
			p.apply(r)
		case r := <-p.polls:
			p.sawQueues(r)
		case r := <-p.beaten:
			p.felt(r)
		case r := <-p.requested:
			p.comply(r)
		case err := <-p.left:
			return p.farewell(err)
		case <-tick.C:
			p.tick()
		case <-p.nudged:
			p.overdue()
		case <-report.C:
			p.report()
		case <-beat.C:
			p.beat()
		case <-p.beatNow:
			p.beatSoon = p.beating
			p.beat()
		case <-p.work.Done():
			return context.Cause(p.work)
		}
		if p.fatal != nil {
			return p.fatal
		}
		p.step()
		if busy := len(p.jobs) > 0 || len(p.stuck) > 0 || p.state == signals.Killing || p.unmastered; busy != ticking {
			ticking = busy
			tick.Stop()
			if busy {
				tick.Reset(tickEvery)
			}
		}
	}
}

// moreOutcomes takes what else has ended meanwhile into the same exchange.
func (p *Process) moreOutcomes() {
	for {
		select {
		case o := <-p.outcomes:
			p.finish(o)
		default:
			return
		}
	}
}

const (
	// briefly is what a job may take that is worth waiting for: less than a call.
	briefly = 50 * time.Microsecond
	// gathers is how often the loop lets others run until all jobs that have just begun have
	// ended. Go's scheduler takes it up again before some of them, every third time.
	gathers = 4
	// gatherFor is after how long it does so no more: something holds the processor.
	gatherFor = 5 * time.Millisecond
)

// gather lets the jobs that have just begun run before the next exchange leaves, so that
// it takes those with it that end at once. It does so where jobs have been shorter than
// an exchange and none is in hand that has been running for longer: such a one could
// keep the processor, and so hold up the others.
func (p *Process) gather() {
	fresh := p.fresh
	p.fresh = false
	if !fresh {
		return
	}
	began := time.Now()
	for n := 0; n < gathers && p.brief && len(p.jobs) > 0 && time.Since(began) < gatherFor; n++ {
		runtime.Gosched()
		p.moreOutcomes()
	}
}

// step does what the state calls for now: send an exchange, or leave.
func (p *Process) step() {
	if !p.taintedAt.IsZero() {
		p.overdue() // the last neighbour may have finished
	}
	p.gather()
	p.weigh()
	p.exchange()
	p.leaveIfDone()
	p.setPolling()
}

func (p *Process) enter(s signals.State) {
	if p.state == s {
		return
	}
	p.log.Debug("state", zap.String("from", string(p.state)), zap.String("to", string(s)))
	p.pauseHooks(s)
	before := s == signals.Running && p.state == signals.Waiting && p.lookedBefore()
	p.state, p.since = s, time.Now()
	if s == signals.Draining || s == signals.Killing {
		p.tellLeaving()
	}
	if (s == signals.Killing || s == signals.Draining) && p.hurry != nil {
		p.hurry()
	}
	if s == signals.Running {
		p.stir()
		if !before {
			p.look()
		}
	}
	p.report()
}

// tellLeaving tells jobs that can go on elsewhere. A process that has only used up its
// number of jobs does not: with one job for each, no slice of a long job would get far.
func (p *Process) tellLeaving() { p.leaveOnce.Do(func() { close(p.leaves) }) }

func (p *Process) pauseHooks(next signals.State) {
	for _, h := range p.d.Hooks {
		switch {
		case next == signals.Paused && h.BeforePause != nil:
			h.BeforePause()
		case p.state == signals.Paused && h.AfterPause != nil:
			h.AfterPause()
		}
	}
}
