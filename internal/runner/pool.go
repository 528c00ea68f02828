package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/program"
)

const (
	// backOffTo bounds the pause before a start after unusable processes.
	backOffTo = 30 * time.Second
	// complainEvery is how often the reason is logged.
	complainEvery = 30 * time.Second
)

// Pool holds the processes of one runner.
type Pool struct {
	o        Options
	log      *zap.Logger
	launcher launch.Launcher
	leaders  sync.Map // pid to *process, for those that this process has started
	told     sync.RWMutex

	// template takes requests to fork; forks: use it.
	template *net.UnixConn
	forks    atomic.Bool
	asking   sync.Mutex

	ending  context.Context //nolint:containedctx // of the pool: it ends with Close
	end     context.CancelFunc
	closing <-chan struct{}
	lives   sync.WaitGroup
	changed chan struct{}

	mu        sync.Mutex
	processes []*process
	idle      []*process // an entry per idle slot; the last one is next
	waiters   []chan *process
	closed    bool
	failures  int // consecutive unusable processes
	last      error
	said      time.Time
	paused    bool
	turn      chan struct{} // closed when a process is ready or was unusable
}

// Open starts the processes of a runner and does not wait for them. The caller must call Close.
func Open(o Options) (*Pool, error) {
	o = o.fill()
	p := &Pool{
		o: o, log: o.Log.With(zap.String("runner", o.Name)), changed: make(chan struct{}, 1), turn: make(chan struct{}),
		launcher: launch.Launcher{Setup: program.SetUp},
	}
	if len(o.Argv) == 0 && o.Requests == nil {
		return nil, fmt.Errorf("runner %q has no command", o.Name)
	}
	p.ending, p.end = context.WithCancel(context.Background())
	p.closing = p.ending.Done()
	if o.Requests != nil {
		err := canFork()
		if err == nil {
			p.template, err = templateOf(o.Requests)
		}
		if err != nil {
			p.log.Warn("processes of a runner are not forked; each boots by itself", zap.Error(err))
		} else {
			p.forks.Store(true)
		}
	}
	p.mu.Lock()
	p.refill()
	p.mu.Unlock()
	p.lives.Go(p.look)
	return p, nil
}

// cannotFork switches from forks to processes that boot by themselves.
func (p *Pool) cannotFork(err error) {
	if p.forks.CompareAndSwap(true, false) {
		p.log.Warn("processes of a runner are no longer forked; each boots by itself", zap.Error(err))
	}
}

// Perform implements handler.Runner.
func (p *Pool) Perform(ctx context.Context, job *resqued.Job, killAfter time.Duration, s *cmdslice.Slice) error {
	killAfter = p.o.killAfter(killAfter)
	until := time.Now().Add(p.waits(job))
	if job.Deaths > 0 && s == nil {
		if err := p.tellEarlier(ctx, until, job, killAfter); err != nil {
			p.tells()
			return err
		}
	}
	for {
		q, err := p.take(ctx, until)
		if err != nil {
			return err
		}
		c := call{q: q, ctx: ctx, job: job, slice: s, killAfter: killAfter}
		begun, err := c.perform()
		if begun {
			err = p.tellDeath(&c, err)
			p.tells()
			return err
		}
	}
}

// tells blocks for good once no end of a job may be reported.
func (p *Pool) tells() {
	p.told.RLock()
	p.told.RUnlock() //nolint:staticcheck // it is the waiting that counts
}

// Abandon suppresses the ends of jobs and kills all processes, for a worker process that is
// about to end itself.
func (p *Pool) Abandon() {
	p.told.Lock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, q := range p.processes {
		if q.state == ready || q.state == leaving {
			q.handle.kill()
		}
	}
}

// Owns implements handler.Runner.
func (p *Pool) Owns(pid int) bool {
	_, ok := p.leaders.Load(pid)
	return ok
}

// Changed implements handler.Runner.
func (p *Pool) Changed() <-chan struct{} { return p.changed }

// Slots implements handler.Runner.
func (p *Pool) Slots() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.processes {
		switch q.state {
		case ready:
			n += q.slots
		case leaving:
			n += q.busy
		}
	}
	return n
}

func (p *Pool) change() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// waits returns how long a job may wait for a process: a small part of its time limit, because
// waiting shortens its run.
func (p *Pool) waits(job *resqued.Job) time.Duration {
	if job.Deadline.IsZero() {
		return p.o.patience
	}
	return min(p.o.patience, max(time.Until(job.Deadline)/10, leastWait))
}

// take returns a process with a slot for the caller. The job waits until until.
func (p *Pool) take(ctx context.Context, until time.Time) (*process, error) {
	p.mu.Lock()
	if q := p.pop(); q != nil {
		p.mu.Unlock()
		return q, nil
	}
	wait := make(chan *process, 1)
	p.waiters = append(p.waiters, wait)
	p.mu.Unlock()
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case q := <-wait:
		return q, nil
	case <-ctx.Done():
	case <-limit.C:
	case <-p.closing:
	}
	return p.stopWaiting(ctx, wait)
}

// pop takes an idle slot, preferably of a process about to be used up, so that it goes before
// its successor.
func (p *Pool) pop() *process {
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	i := slices.IndexFunc(p.idle, func(q *process) bool { return q.replaced })
	if i < 0 {
		i = n - 1
	}
	q := p.idle[i]
	p.idle[i] = p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.occupy(q)
	return q
}

func (p *Pool) occupy(q *process) {
	q.busy++
	q.jobs++
	q.since = time.Now()
	most := p.o.JobsPerRunner
	if most <= 0 || q.state != ready {
		return
	}
	// Start the successor before it is needed.
	if q.jobs >= most-max(most/10, 1) && !q.replaced {
		p.succeed(q)
	}
	if q.jobs >= most {
		p.dismissNow(q)
	}
}

// put gives back a slot. worked: the process has ended a job in it.
func (p *Pool) put(q *process, worked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.busy--
	q.since = time.Now()
	if worked {
		p.failures = 0
		if q.busy == 0 {
			q.out.errs.forget()
		}
	}
	if q.state == ready {
		p.offer(q)
		return
	}
	p.sendOff(q)
}

func (p *Pool) offer(q *process) {
	if len(p.waiters) > 0 {
		w := p.waiters[0]
		p.waiters = p.waiters[1:]
		p.occupy(q)
		w <- q
		return
	}
	p.idle = append(p.idle, q)
}

func (p *Pool) ready(q *process, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.since = time.Now()
	if p.closed {
		q.state = leaving
		p.sendOff(q)
		return
	}
	q.state = ready
	q.out.quiet.Store(false)
	p.turned()
	p.change()
	p.inform(q)
	p.log.Debug("runner ready", zap.Int64("runner_pid", q.pid.Load()), zap.String("language", shown(q.hello.Language)),
		zap.String("app", shown(q.hello.App)), zap.Int("concurrency", q.slots), zap.Duration("took", took))
	for range q.slots {
		if q.state == ready {
			p.offer(q)
		}
	}
	if old := q.replaces; old != nil {
		q.replaces = nil
		if old.dismiss && old.state == ready {
			old.tellLeaving()
			p.dismissNow(old)
			p.sendOff(old)
		}
	}
	p.refill()
}

func (p *Pool) succeed(q *process) {
	q.replaced = true
	p.refill()
	// The youngest one is the successor.
	if n := len(p.processes); n > 0 {
		if last := p.processes[n-1]; last != q && last.state == booting && last.replaces == nil {
			last.replaces = q
		}
	}
}

func (p *Pool) dismissNow(q *process) {
	if q.state != ready {
		return
	}
	q.state = leaving
	p.idle = without(p.idle, q)
	p.change()
	p.refill()
}

func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == one })
}

// sendOff tells a process without jobs to leave.
func (p *Pool) sendOff(q *process) {
	if q.state != leaving || q.busy > 0 || q.told {
		return
	}
	q.told = true
	q.late = time.AfterFunc(p.o.killAfter(0), func() {
		q.log.Warn("a runner did not leave; killing it", zap.Int64("runner_pid", q.pid.Load()))
		q.kill("was killed, because it did not leave")
	})
	// Not inline: a process whose buffer is full must not hold up others.
	p.lives.Go(func() { _ = q.conn.write(leaveLine) })
}

func (p *Pool) lost(q *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := q.state
	q.state = gone
	if q.late != nil {
		q.late.Stop()
	}
	p.idle, p.processes = without(p.idle, q), without(p.processes, q)
	if p.closed {
		return
	}
	if was == booting || was == ready || q.useless {
		p.failures++
		p.last = q.ending
		p.turned()
		p.complain(was)
	}
	p.refill()
	p.change()
}

// complain logs why a process was unusable or ended by itself.
func (p *Pool) complain(was state) {
	if p.failures > 1 && time.Since(p.said) < complainEvery {
		return
	}
	p.said = time.Now()
	what := "a runner ended by itself; starting another"
	if was == booting {
		what = "a runner could not be started; trying again"
	}
	p.log.Error(what, zap.Error(p.last), zap.Int("in_a_row", p.failures))
}

func (p *Pool) failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures > 0
}

func (p *Pool) wanted() int { return (p.o.Threads + p.o.Concurrency - 1) / p.o.Concurrency }

func (p *Pool) refill() {
	if p.closed {
		return
	}
	there := 0
	for _, q := range p.processes {
		if q.state == booting || q.state == ready && !q.replaced {
			there++
		}
	}
	for ; there < p.wanted(); there++ {
		q := &process{pool: p, log: p.log, exited: make(chan struct{}), ended: make(chan struct{}), since: time.Now(), calls: map[int64]*call{}}
		q.leaves, q.tellLeaving = context.WithCancel(context.Background())
		p.processes = append(p.processes, q)
		delay := p.delay()
		p.lives.Go(func() { q.live(delay) })
	}
}

// delay is how long a start waits after failures.
func (p *Pool) delay() time.Duration {
	if p.failures == 0 {
		return 0
	}
	d := min(p.o.backOffFrom<<min(p.failures-1, 20), backOffTo)
	return d/2 + rand.N(d/2)
}

// Close makes all processes leave, kills those that do not, and returns when they are gone. No
// job may be performed any more.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, q := range p.processes {
		if q.state == ready {
			q.state = leaving
		}
		p.sendOff(q)
	}
	p.idle = nil
	p.mu.Unlock()
	p.end()
	p.lives.Wait()
	p.launcher.Close()
	if p.template != nil {
		_ = p.template.Close()
	}
}
