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
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
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
	cfg Config
	d   Deps
	log *zap.Logger
	id  identity // since the greeting

	life     *life
	link     *link
	troubles *troubles
	alarm    *alarm
	poller   *poller

	registrar *registrar
	threads   *threads
	exchanges *exchanges
	exchanger *exchanger

	looked     int      // threads whose registration was looked for
	kills      int      // messages that told to kill jobs
	leftovers  []string // tokens that the last beat has told of; see suspectLeftovers
	empty      bool     // left because everything is empty
	asked      bool     // the master knows that age or memory is used up
	weighed    int      // done when memory was looked at last, at weighedAt
	weighedAt  time.Time
	taintedAt  time.Time
	partedAt   time.Time // when all that keeps a tainted process was what has ended
	drainEnds  time.Time
	doneAt     time.Time     // when a drain had nothing left but what has ended; see leaveUnrecorded
	aloneSince time.Time     // when the master and the last job were gone
	lastBeat   time.Duration // the boot time at which the last successful beat was sent

	beating  bool
	beatSoon bool // when the beat that is under way is over
	leaving  bool
	asking   bool // for requests to kill a job
	askedAt  time.Time
	strays   []string // tokens of requests for jobs that are not in hand
	showed   bool     // the last beat named jobs that were told to stop
	hurry    func()   // bounds a leaving that waits for Redis; nil before it began

	apart     apart
	foundAt   time.Time // when the master was last told of more jobs
	ahead     ahead
	beats     chan beatCall
	beaten    chan beatResult
	left      chan error
	beatNow   bell          // to the loop: a beat before the next is due
	asks      chan []string // tokens of requests that hit nobody
	requested chan requests

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
	cfg = cfg.withDefaults()
	p := &Process{
		cfg: cfg, d: d, log: d.Log, life: newLife(), troubles: newTroubles(d.Log), alarm: newAlarm(),
		asks: make(chan []string, 1), requested: make(chan requests, 1),
		beats: make(chan beatCall, 1), beaten: make(chan beatResult, 1),
		left: make(chan error, 1), beatNow: newBell(),
		leaves: make(chan struct{}),
	}
	p.link = newLink(d.Conn, d.Log, p.troubles)
	return p, nil
}

// Run greets the master, works jobs until the process shall leave, and leaves. It
// returns nil after an orderly end. A job that ignores its kill makes it call
// Deps.Exit instead of returning.
func (p *Process) Run(ctx context.Context) error {
	p.work, p.stopWork = context.WithCancel(resqued.WithLeaving(ctx, p.leaves))
	defer p.helpers.Wait()
	defer p.stopWork()
	p.life.started, p.life.since = time.Now(), time.Now()

	if err := p.greet(); err != nil {
		return err
	}
	if err := p.boot(); err != nil {
		if p.life.state != signals.Killing && p.life.state != signals.Draining {
			return err
		}
		return nil // told to go before it was up: nothing is held, nothing to say
	}
	p.startHelpers()
	return p.loop()
}

// assemble makes the parts for which the process has to know who it is.
func (p *Process) assemble(id identity) {
	p.id = id
	p.cfg.Quota = staggered(p.cfg.Quota, id)
	if id.alone {
		p.cfg = p.cfg.alone()
	}
	p.registrar = newRegistrar(p.d.Store, p.log)
	p.exchanger = newExchanger(p.cfg, id, p.d.Store, p.registrar, p.d.Namer, p.beatNow, p.log)
	p.exchanges = newExchanges(p.cfg, id, p.life, p.d.Stats, p.troubles, p.log)
	p.threads = newThreads(p.work, p.cfg, id, p.d, p.exchanges, p.alarm)
	p.exchanges.threads = p.threads // each needs the other
	p.poller = newPoller(pollerConfig{
		interval: p.cfg.Interval, untilEmpty: p.cfg.UntilEmpty, alone: id.alone, queues: p.cfg.Queues, unique: p.cfg.Unique,
		started: p.life.started, openWaiter: p.d.OpenWaiter,
	}, p.d.Store, p.d.Stats, p.exchanges.sends.Load, &p.helpers, p.log)
}

func (p *Process) startHelpers() {
	p.threads.start()
	p.exchanges.start(p.work, &p.helpers, p.exchanger)
	p.helpers.Go(func() { p.poller.run(p.work) })
	p.helpers.Go(p.heart)
	p.helpers.Go(p.requester)
}

// loop is the only code that touches the process's state once it is up.
func (p *Process) loop() error {
	defer p.threads.close()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ticking := true
	report := time.NewTicker(proc.ReportEvery(p.cfg.LockDuration))
	defer report.Stop()
	beat := time.NewTicker(p.cfg.BeatEvery)
	defer beat.Stop()

	p.poller.stir()
	p.poller.look() // also one that waits for its turn: then it need not look any more
	p.step()
	for {
		select {
		case sig := <-p.d.Signals:
			p.obey(sig)
		case m, ok := <-p.link.messages:
			p.heed(m, ok)
		case o := <-p.threads.outcomes:
			p.threads.finish(o)
			p.threads.takeOutcomes()
		case r := <-p.exchanges.answers:
			p.onExchanged(r)
		case r := <-p.poller.results:
			p.sawQueues(r)
		case r := <-p.beaten:
			p.felt(r)
		case r := <-p.requested:
			p.comply(r)
		case err := <-p.left:
			return p.farewell(err)
		case <-tick.C:
			p.tick()
		case <-p.alarm.bell:
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
		if p.life.fatal != nil {
			return p.life.fatal
		}
		p.step()
		if busy := len(p.threads.jobs) > 0 || len(p.exchanges.stuck.ends) > 0 || p.life.state == signals.Killing || p.link.gone; busy != ticking {
			ticking = busy
			tick.Stop()
			if busy {
				tick.Reset(tickEvery)
			}
		}
	}
}

// step does what the state calls for now: send an exchange, or leave.
func (p *Process) step() {
	if !p.taintedAt.IsZero() {
		p.overdue() // the last neighbour may have finished
	}
	p.threads.gather()
	p.weigh()
	if !p.leaving {
		p.exchanges.send()
	}
	p.leaveIfDone()
	p.setPolling()
}

func (p *Process) enter(s signals.State) {
	if p.life.state == s {
		return
	}
	p.log.Debug("state", zap.String("from", string(p.life.state)), zap.String("to", string(s)))
	p.pauseHooks(s)
	before := s == signals.Running && p.life.state == signals.Waiting && p.exchanges.lookedBefore()
	p.life.state, p.life.since = s, time.Now()
	if s == signals.Draining || s == signals.Killing {
		p.tellLeaving()
	}
	if (s == signals.Killing || s == signals.Draining) && p.hurry != nil {
		p.hurry()
	}
	if s == signals.Running {
		p.poller.stir()
		if !before {
			p.poller.look()
		}
	}
	p.report()
}

// onExchanged takes an exchange's answer: it starts the new jobs, or gives them back if
// the process has been told to stop taking any since it asked.
func (p *Process) onExchanged(r exchangeResult) {
	overlapped := p.exchanges.answered(r.lane)
	if r.err != nil {
		p.life.fatal = r.err
		return
	}
	p.threads.takeOutcomes()
	jobs := p.exchanges.take(&r)
	if !p.life.running() {
		p.exchanges.giveBack(jobs)
		return
	}
	now := time.Now()
	p.threads.beginAll(jobs, r.sent, now)
	if len(r.req.Completions)+len(jobs) > 0 {
		p.poller.stir()
	}
	if len(jobs) > 0 && len(jobs) == len(r.req.Wants) && p.threads.vacant() == 0 && !p.id.alone && time.Since(p.foundAt) >= p.cfg.Interval {
		p.foundAt = time.Now()
		p.link.tell(proc.Message{Type: proc.Found})
	}
	p.exchanges.weighHunger(&r, overlapped)
	p.sawSuspects(r)
	if p.exchanges.shouldLook(&r) {
		p.poller.look()
	}
	if p.cfg.Quota > 0 {
		if p.threads.begun >= p.cfg.Quota {
			p.retire("quota")
		} else {
			p.foresee(now)
		}
	}
}

// tellLeaving tells jobs that can go on elsewhere. A process that has only used up its
// number of jobs does not: with one job for each, no slice of a long job would get far.
func (p *Process) tellLeaving() { p.leaveOnce.Do(func() { close(p.leaves) }) }

func (p *Process) pauseHooks(next signals.State) {
	for _, h := range p.d.Hooks {
		switch {
		case next == signals.Paused && h.BeforePause != nil:
			h.BeforePause()
		case p.life.state == signals.Paused && h.AfterPause != nil:
			h.AfterPause()
		}
	}
}
