// Package workerproc is one worker process: M threads, the loop that ends and reserves their
// jobs, the heartbeat, and how it pauses, drains, kills and leaves.
//
// One goroutine, that of Run, is the loop. It owns the state of all parts, except what their
// comments give to another goroutine. It starts the threads, the exchangers, the poller, the
// heart and the requester; they communicate over channels. The loop waits for all of them except
// the threads. The states are those of package signals:
//
//	starting → running ⇄ paused → retiring / draining → gone
//	                any of them → killing → gone
//
// A process that its master declares Alone takes one job that may have killed its process, and
// leaves.
//
// Process assembles the parts. Each part is a struct that has what all share and the parts that it
// calls:
//
//	threads     threads.go, record.go, job.go, counters.go      the threads and the jobs in hand
//	exchanges   exchanges.go, verdict.go, lane.go, stuck.go     what to tell Redis and what to ask for
//	candidates  candidates.go                                   the queues to try
//	exchanger   exchange.go                                     carrying out one exchange
//	poller      poll.go, waker.go, watchlist.go                 finding queues with jobs
//	kills       kill.go, requests.go                            stopping jobs, and the process if they do not stop
//	beats       beat.go, enroll.go, leftover.go, registrar.go   leases, registration, what Redis has lost
//	reports     report.go, ahead.go, suspects.go                what the master is told
//	leaving     leave.go                                        the end
//
// life.go, link.go, lease.go, trouble.go and bell.go hold what the parts share. process.go is the
// loop, control.go handles the master and the operator, and deps.go is what a process is given.
package workerproc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// tickEvery is how often the loop checks what only time changes: running jobs to mirror,
// deadlines, age and memory.
var tickEvery = 250 * time.Millisecond

// mirrorAfter is how long a job runs before Ruby's pages show it.
var mirrorAfter = time.Second

// ErrFenced means that another process has recovered this one's jobs, because its lease was
// past. The process must end without touching them.
var ErrFenced = errors.New("this process has been given up for dead: its lease was past")

// Process is one worker process: the loop and its parts. The goroutine of Run owns all fields.
// New makes what they share; assemble makes the parts, which need the process's identity.
type Process struct {
	*shared

	registrar *registrar
	exchanger *exchanger
	exchanges *exchanges
	counted   *counted
	threads   *threads
	poller    *poller
	kills     *kills
	requests  *killRequests
	beats     *beats
	reports   *reports
	suspects  *suspects
	ahead     *ahead
	leaving   *leaving

	full bool // as last reported to the master

	// leaves ends when jobs that can continue elsewhere should know that the process leaves.
	// Using up JobsPerFork does not end it: with one job per process, no slice of a long job
	// would get far.
	leaves      context.Context //nolint:containedctx // it is told to jobs
	tellLeaving context.CancelFunc
	lingering   time.Time // since when ends wait for others; zero = none waits

	work     context.Context // ends when the process gives up on everything
	stopWork context.CancelFunc
	helpers  sync.WaitGroup
}

// New checks cfg and returns a process that has done nothing yet.
func New(cfg Config, d Deps) (*Process, error) {
	if cfg.Threads < 1 {
		return nil, fmt.Errorf("%d threads: a worker process needs one at least", cfg.Threads)
	}
	p := &Process{shared: newShared(cfg.withDefaults(), d)}
	p.leaves, p.tellLeaving = context.WithCancel(context.Background())
	return p, nil
}

// Run greets the master, works jobs until the process has to leave, and leaves. It returns nil
// after an orderly end, ErrFenced if other processes have recovered its jobs, and the cause of
// ctx when that ends. If a job ignores its kill, Run calls Deps.Exit instead of returning.
func (p *Process) Run(ctx context.Context) error {
	p.work, p.stopWork = context.WithCancel(jobctx.WithLeaving(ctx, p.leaves))
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
		return nil // told to leave while starting: it holds nothing
	}
	p.startHelpers()
	return p.loop()
}

func (p *Process) assemble(id identity) {
	p.id = id
	p.cfg.JobsPerFork = staggered(p.cfg.JobsPerFork, id)
	if id.alone {
		p.cfg = p.cfg.alone()
	}
	s := p.shared
	p.registrar = newRegistrar(s)
	p.exchanger = &exchanger{s, p.registrar}
	p.exchanges = newExchanges(s)
	p.counted = &counted{shared: s}
	p.threads = newThreads(p.work, s, p.exchanges, p.counted)
	p.exchanges.threads = p.threads // each needs the other
	p.poller = newPoller(s, p.exchanges.sends.Load, &p.helpers)
	p.kills = &kills{shared: s, exchanges: p.exchanges, retire: p.retire}
	p.requests = newKillRequests(s, p.kills)
	p.reports = newReports(s, p.threads, p.kills, p.counted)
	p.beats = newBeats(s, p.registrar, p.threads, p.kills, &leftovers{shared: s, exchanges: p.exchanges, threads: p.threads}, p.reports)
	p.suspects = &suspects{shared: s}
	p.ahead = &ahead{shared: s}
	p.leaving = newLeaving(p.work, &p.helpers, s, p.exchanges)
}

// startHelpers starts the parts' goroutines, which end with work.
func (p *Process) startHelpers() {
	p.threads.start()
	p.exchanges.start(p.work, &p.helpers, p.exchanger)
	p.helpers.Go(func() { p.poller.run(p.work) })
	p.helpers.Go(func() { p.beats.heart(p.work) })
	p.helpers.Go(func() { p.requests.run(p.work) })
}

func (p *Process) loop() error {
	defer p.threads.close()
	defer p.counted.sendAll()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ticking := true
	report := time.NewTicker(proc.ReportEvery(p.cfg.LockDuration))
	defer report.Stop()
	beat := time.NewTicker(p.cfg.BeatEvery)
	defer beat.Stop()

	p.poller.hurry()
	p.poller.look() // also if it waits for its turn: then it has looked already
	p.step()
	for {
		select {
		case sig := <-p.d.Signals:
			p.onSignal(sig)
		case m, ok := <-p.link.messages:
			p.onMasterMessage(m, ok)
		case o := <-p.threads.outcomes:
			p.threads.finish(o)
			p.threads.takeOutcomes()
		case r := <-p.exchanges.answers:
			p.onExchanged(r)
		case r := <-p.poller.results:
			p.onPoll(r)
		case queue := <-p.poller.pushed:
			p.exchanges.pushed(queue)
		case <-p.exchanges.turn.bell:
			p.exchanges.hungry = p.exchanges.hungry || p.exchanges.polled
		case r := <-p.beats.answers:
			p.beats.onBeat(r)
		case r := <-p.requests.found:
			p.requests.onKillRequests(r)
		case err := <-p.leaving.left:
			p.counted.sendAll()
			p.leaving.farewell(err, p.threads.done)
			return nil
		case <-tick.C:
			p.tick()
		case <-p.alarm.bell:
			p.kills.overdue()
		case <-report.C:
			p.reports.report()
		case <-beat.C:
			p.beats.beat()
		case <-p.d.Roomier:
			p.roomChanged()
		case <-p.beatNow:
			p.beats.hurry()
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

func (p *Process) step() {
	if p.kills.tainted() {
		p.kills.overdue() // the last neighbour may have finished
	}
	p.threads.gather()
	p.reports.checkMemory()
	if !p.life.leaving && !p.linger() {
		p.exchanges.send()
	}
	p.leaving.leaveIfDone()
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
	if p.life.goes() {
		p.tellLeaving()
		p.leaving.hurryUp()
	}
	if s == signals.Running {
		p.poller.hurry()
		if !before {
			p.poller.look()
		}
	}
	p.reports.report()
}

// onExchanged handles the answer of an exchange: it starts the new jobs, or gives them back if
// the process has stopped taking jobs in between.
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
	p.threads.beginAll(jobs, r.refused, r.sent, now)
	if !r.turn.IsZero() {
		p.exchanges.turn.wake(r.turn)
	}
	if len(r.req.Completions)+len(jobs) > 0 {
		p.poller.hurry()
	}
	if len(jobs) > 0 && len(jobs) == len(r.req.Wants) && p.threads.vacant() == 0 {
		p.reports.found()
	}
	p.exchanges.updateHunger(&r, overlapped)
	p.sawSuspects(r)
	if p.exchanges.shouldLook(&r) {
		p.poller.look()
	}
	if p.cfg.JobsPerFork > 0 {
		if p.threads.used >= p.cfg.JobsPerFork {
			p.retire("quota")
		} else {
			p.ahead.foresee(p.threads.used, now)
		}
	}
}

// roomChanged handles a change of Capacity. The next step asks for jobs if some are known to
// wait; a look finds others.
func (p *Process) roomChanged() {
	full := p.threads.full()
	if full != p.full {
		p.full = full
		p.reports.report() // a full process is useless as the poller
	}
	if p.life.running() && !p.exchanges.hungry && p.exchanges.vacant() {
		p.poller.look()
	}
}

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

// setPolling sets how often the poller looks. While all threads are busy, or Capacity is used
// up, looks are rarely needed, unless only they can find new queues.
func (p *Process) setPolling() {
	mode := int32(pollOff)
	switch {
	case p.life.leaving || !p.life.running():
	case p.id.alone && p.threads.begun > 0:
	case !p.exchanges.vacant() && (!p.cfg.Queues.Dynamic() || len(p.threads.idle) > 0):
		mode = pollSeldom
	case p.cfg.UntilEmpty || p.id.alone:
		mode = pollAlways
	default:
		mode = pollQuiet
	}
	p.poller.set(mode)
	if mode == pollQuiet && !p.exchanges.hungry && p.exchanges.underway() == 0 {
		p.poller.beCalm()
	}
}

func (p *Process) onPoll(r pollResult) {
	if r.err != nil {
		p.troubles.complain("poll", "cannot look for jobs; trying again", zap.Error(r.err))
		p.troubles.redisAway(r.err)
		return
	}
	p.troubles.redisBack()
	p.exchanges.saw(r.waiting)
	// A look from before the start or the end of a pause does not prove that all is empty.
	calm := r.began.After(p.life.since) && len(p.threads.jobs) == 0 && p.exchanges.settledSince(r.sends)
	if p.id.alone {
		p.sawAlone(r)
		return
	}
	p.suspects.tell(r.suspects, false)
	switch {
	case r.any:
		p.exchanges.hungry = true
	case p.cfg.UntilEmpty && calm && !r.later && !r.locked && r.suspects == 0 && p.life.running():
		p.leaving.empty = true
		p.enter(signals.Draining)
	}
}

func (p *Process) tick() {
	p.beats.mirror()
	p.requests.ask()
	p.kills.watchLocks()
	p.kills.overdue()
	p.exchanges.unstick()
	p.kills.abandon()
	if p.leaving.drainOver() {
		p.log.Warn("the drain took too long; killing the jobs", zap.Int("jobs", len(p.threads.jobs)))
		p.kills.kill(drainOver(p.cfg.DrainTimeout, p.cfg.DrainRequeue), p.threads.jobs.all(), p.cfg.TermTimeout)
		p.enter(signals.Killing)
	}
}

// retire makes the process stop taking jobs for good, by its own decision.
func (p *Process) retire(reason string) {
	if p.life.state != signals.Running && p.life.state != signals.Paused {
		return
	}
	// First: a successor may wait for it.
	p.link.tell(proc.Message{Type: proc.Retires, Reason: reason})
	p.enter(signals.Retiring)
}
