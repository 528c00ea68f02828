// Package runner performs jobs in processes that stay: runners, which speak the protocol of
// docs/runner-protocol.md. A Pool keeps as many of one kind as the threads of a worker process need,
// hands each job to one that has a place for it, and ends those that do not stop, break the
// protocol, or have done enough.
package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cmdslice"
	"github.com/resqued/resqued/internal/launch"
	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// waitFor is how long a job waits for a runner, before it goes back to its queue.
	waitFor = 10 * time.Second
	// requeueAfter keeps jobs that find no runner from spinning.
	requeueAfter = time.Second
	// pauseFrom and pauseTo are the pauses between two starts that fail.
	pauseFrom = 100 * time.Millisecond
	pauseTo   = 30 * time.Second
	// leaveFor is how long a runner that is to leave may take.
	leaveFor = 10 * time.Second
	// lookEvery is how often sizes and ages are looked at.
	lookEvery = time.Second
)

// Options describe the runners of a Pool.
type Options struct {
	// Name is the name of the runner in the configuration.
	Name string
	// Argv, Dir and Env are those of a runner that this process starts itself. Env is all of its
	// environment but the variables of the protocol.
	Argv []string
	Dir  string
	Env  []string
	// Requests is the socket to the template that forks runners; nil: this process starts them.
	Requests *os.File
	// Processes is how many there are, Concurrency how many jobs each performs at a time.
	Processes, Concurrency int
	// BootTimeout is how long one may take to greet.
	BootTimeout time.Duration
	// Jobs is after how many jobs one is replaced; MaxRSS (bytes) and MaxAge replace one that is
	// larger or older. 0 = no limit.
	Jobs   int
	MaxRSS int64
	MaxAge time.Duration
	// Proc names the worker process.
	Proc string
	// Knows reports whether jobs of a class may be performed; nil = any.
	Knows func(class string) bool
	// Patience stands for the time for which a job waits for a runner, if it is not 0.
	Patience time.Duration
	Log      *zap.Logger
}

// Pool holds the runners of one kind.
type Pool struct {
	o        Options
	mark     mark.Mark // of the worker process
	launcher launch.Launcher
	requests *net.UnixConn
	log      *zap.Logger

	free    chan *process // one element for each place for a job, of processes that may have ended meanwhile
	changed chan struct{}
	wanted  chan struct{} // something is to be started
	ctx     context.Context
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	mu        sync.Mutex
	processes map[*process]bool // those that take jobs
	all       map[*process]bool // and those that leave
	leaders   map[int]bool
	booting   int
	pause     time.Duration // before the next start, after one that has failed
	trouble   error         // why the last start has failed
	started   chan struct{} // closed when the first one was ready
	closed    bool
	starts    int64
	deaths    int64
	direct    bool // this process starts runners, whatever Requests is
}

// Open starts the runners; Await waits for the first one. Close ends them.
func Open(o Options) (*Pool, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Concurrency = max(1, o.Concurrency)
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{
		o: o, mark: mark.Worker(o.Proc), log: o.Log.With(zap.String("runner", o.Name)),
		launcher: launch.Launcher{Setup: setUp},
		free:     make(chan *process, 16*(o.Processes*o.Concurrency+1)), changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
		ctx: ctx, stop: stop, processes: map[*process]bool{}, all: map[*process]bool{}, leaders: map[int]bool{},
		started: make(chan struct{}), direct: o.Requests == nil || !Forks,
	}
	if !p.direct {
		conn, err := net.FileConn(o.Requests)
		unix, ok := conn.(*net.UnixConn)
		if err == nil && !ok {
			_ = conn.Close()
			err = errors.New("it is no unix socket")
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("the socket to the template of runner %q: %w", o.Name, err)
		}
		p.requests = unix
	}
	p.tasks.Go(p.keep)
	return p, nil
}

// Await waits until the first runner is ready. It fails when none is after the time to boot, with
// the reason.
func (p *Pool) Await(ctx context.Context) error {
	late := time.NewTimer(p.o.BootTimeout)
	defer late.Stop()
	for {
		select {
		case <-p.started:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return p.notReady(fmt.Errorf("it is not ready after %s (boot_timeout)", p.o.BootTimeout))
		case <-time.After(50 * time.Millisecond):
		}
		p.mu.Lock()
		trouble := p.trouble
		p.mu.Unlock()
		if trouble != nil && p.direct {
			return p.notReady(trouble)
		}
	}
}

func (p *Pool) notReady(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != nil {
		err = p.trouble
	}
	return fmt.Errorf("runner %q cannot be started by %q: %w", p.o.Name, p.o.Argv, err)
}

// Slots returns how many jobs the runners that are there perform at a time.
func (p *Pool) Slots() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for process := range p.processes {
		n += process.slots()
	}
	return n
}

// Changed has an element when Slots may have changed.
func (p *Pool) Changed() <-chan struct{} { return p.changed }

// Owns reports whether a process is one that this one has started and waits for.
func (p *Pool) Owns(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaders[pid]
}

// Knows reports whether jobs of a class may be performed.
func (p *Pool) Knows(class string) bool { return p.o.Knows == nil || p.o.Knows(class) }

func (p *Pool) disown(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leaders, pid)
}

// Perform hands a job to a runner and blocks until it has ended, or until nothing of the process
// that performed it is left. When ctx ends, the job is told to stop, and gets killAfter for that.
// s is the slice of a long job that the job is, or nil; refresh has the class lock of the job
// refreshed. After a *jobctx.DeathError nobody knows how far the job came.
func (p *Pool) Perform(ctx context.Context, job *resqued.Job, killAfter time.Duration, s *cmdslice.Slice, refresh func()) error {
	c := &call{task: task{job, killAfter, s, refresh}, messages: make(chan message, ahead)}
	for {
		process, err := p.take(ctx)
		if err != nil {
			return err
		}
		last, err := process.begin(c)
		if err != nil {
			continue // its place has outlived it
		}
		c.process = process
		if last {
			p.retire(process)
		} else if p.o.Jobs > 0 {
			p.prepare(process)
		}
		line := appendJob(make([]byte, 0, 512+len(job.Payload)), c.number, job, s)
		if process.write(line) != nil {
			// It is gone, and did not get the whole line: it has not begun.
			process.end(c)
			continue
		}
		err = c.await(ctx)
		p.put(process, c)
		return err
	}
}

// take waits for a place.
func (p *Pool) take(ctx context.Context) (*process, error) {
	if ctx.Err() == nil {
		for {
			select {
			case process := <-p.free:
				if process.usable() {
					return process, nil
				}
				continue
			default:
			}
			break
		}
	}
	most := waitFor
	if p.o.Patience > 0 {
		most = p.o.Patience
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		select {
		case process := <-p.free:
			if process.usable() {
				return process, nil
			}
		case <-ctx.Done():
			return nil, errNotBegun
		case <-late.C:
			p.mu.Lock()
			trouble := p.trouble
			p.mu.Unlock()
			if trouble == nil {
				trouble = errors.New("all of its processes are busy, or boot")
			}
			return nil, fmt.Errorf("runner %s: %w: %w", p.o.Name, trouble, resqued.Requeue(requeueAfter))
		}
	}
}

// errNotBegun: no runner was free before the job was to stop.
var errNotBegun = errors.New("no runner has begun it")

func (p *process) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.retired && p.broken == nil
}

// put takes a process back after a job.
func (p *Pool) put(process *process, c *call) {
	stopped, _ := c.how()
	again, idle := process.end(c)
	switch {
	case stopped && process.slots() == 1:
		process.fail(errStopped)
	case again:
		p.free <- process
	case idle:
		p.tasks.Go(func() { process.leave(leaveFor) })
	}
}

// errStopped: the runner has performed a job that was stopped.
var errStopped = errors.New("is replaced because a job in it was stopped")

// retire has a process take no new job; another takes its place.
func (p *Pool) retire(process *process) {
	p.remove(process)
	if process.retire() {
		p.tasks.Go(func() { process.leave(leaveFor) })
	}
}

// remove takes a process out of those that take jobs.
func (p *Pool) remove(process *process) {
	p.mu.Lock()
	delete(p.processes, process)
	p.mu.Unlock()
	p.want()
}

// prepare has the next process started while one still has some jobs to go.
func (p *Pool) prepare(process *process) {
	process.mu.Lock()
	left := p.o.Jobs - process.begun
	soon := left <= max(2*process.slots(), p.o.Jobs/10) && !process.spent
	process.spent = process.spent || soon
	process.mu.Unlock()
	if soon {
		p.want()
	}
}

// want has keep look.
func (p *Pool) want() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

func (p *Pool) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// keep starts what is missing, and replaces what is too large or too old.
func (p *Pool) keep() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var again <-chan time.Time
	for {
		if pause, more := p.fill(); more {
			again = time.After(pause)
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.wanted:
		case <-again:
			again = nil
		case <-look.C:
			p.measure()
		}
	}
}

// fill starts what is missing; after a start that has failed, one at a time and later. more reports
// that it has to look again after a pause.
func (p *Pool) fill() (pause time.Duration, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, false
	}
	// Those that are nearly used up do not count, so that the next one is there in time.
	fresh := 0
	for process := range p.processes {
		if !process.isSpent() {
			fresh++
		}
	}
	for fresh+p.booting < p.o.Processes {
		if p.pause > 0 && p.booting > 0 {
			return 0, false // it is looked at again when that start has ended
		}
		p.booting++
		wait := time.Duration(0)
		if p.pause > 0 {
			wait = p.pause/2 + rand.N(p.pause/2+1)
		}
		p.tasks.Go(func() { p.start(wait) })
	}
	return 0, false
}

func (p *process) isSpent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}

// start starts a process and adds it.
func (p *Pool) start(wait time.Duration) {
	var process *process
	err := context.Cause(p.ctx)
	if err == nil && wait > 0 {
		select {
		case <-time.After(wait):
		case <-p.ctx.Done():
			err = context.Cause(p.ctx)
		}
	}
	began := time.Now()
	if err == nil {
		process, err = p.boot()
	}
	p.mu.Lock()
	p.booting--
	if err == nil && p.closed {
		p.mu.Unlock()
		process.fail(errors.New("was not needed any more"))
		return
	}
	if err != nil {
		if !p.closed {
			if p.pause == 0 || p.trouble == nil || p.trouble.Error() != err.Error() {
				p.log.Error("a runner cannot be started; its jobs wait", zap.Strings("command", p.o.Argv), zap.Error(err))
			}
			p.trouble, p.pause = err, min(max(2*p.pause, pauseFrom), pauseTo)
		}
		p.mu.Unlock()
		p.want()
		return
	}
	p.trouble, p.pause = nil, 0
	p.starts++
	p.processes[process], p.all[process] = true, true
	select {
	case <-p.started:
	default:
		close(p.started)
	}
	p.mu.Unlock()
	p.log.Debug("runner ready", zap.Int("pid", process.pid), zap.Duration("took", time.Since(began)), zap.Bool("forked", process.leader == nil),
		zap.String("language", wire.Printable(process.hello.Language, 100)), zap.String("app", wire.Printable(process.hello.App, 200)))
	p.tasks.Go(process.read)
	for range process.slots() {
		p.free <- process
	}
	p.want()
	p.tell()
}

// lost takes a process out of those that are there, because it is to end now.
func (p *Pool) lost(process *process, _ error) {
	p.remove(process)
	p.tell()
}

// buried notes the end of a process that nothing is left of.
func (p *Pool) buried(process *process, why error, status string, jobs int) {
	p.mu.Lock()
	delete(p.all, process)
	retired := process.isRetired()
	if jobs > 0 {
		p.deaths++
	}
	p.mu.Unlock()
	fields := []zap.Field{zap.Int("pid", process.pid), zap.String("because", why.Error()), zap.Int("jobs_done", process.jobs())}
	if status != "" {
		fields = append(fields, zap.String("ended", status))
	}
	switch {
	case jobs > 0:
		p.log.Error("a runner died with a job in hand", append(fields, zap.Int("jobs", jobs), zap.String("stderr", process.output.tail.text()))...)
	case retired:
		p.log.Debug("runner left", fields...)
	default:
		p.log.Warn("a runner ended; another takes its place", append(fields, zap.String("stderr", process.output.tail.text()))...)
	}
}

func (p *process) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

func (p *process) jobs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun - len(p.calls)
}

// measure retires processes that are too large or too old.
func (p *Pool) measure() {
	p.mu.Lock()
	list := make([]*process, 0, len(p.processes))
	for process := range p.processes {
		list = append(list, process)
	}
	p.mu.Unlock()
	for _, process := range list {
		rss := resident(process.pid)
		process.rss.Store(rss)
		if most := p.o.MaxRSS; most > 0 && rss > most {
			// Pages that it shares with its template are not its own.
			if own := proportional(process.pid); own == 0 || own > most {
				p.log.Info("a runner is too large and is replaced", zap.Int("pid", process.pid), zap.Int64("rss", rss), zap.Int64("max_rss", most))
				p.retire(process)
				continue
			}
		}
		if p.o.MaxAge > 0 && time.Since(process.born) > p.o.MaxAge {
			p.retire(process)
		}
	}
}

// Pause tells the runners that no jobs come for a while, or that they come again.
func (p *Pool) Pause(on bool) {
	line := "{\"resume\":true}\n"
	if on {
		line = "{\"pause\":true}\n"
	}
	for _, process := range p.everyone() {
		_ = process.write([]byte(line))
	}
}

func (p *Pool) everyone() []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*process, 0, len(p.all))
	for process := range p.all {
		list = append(list, process)
	}
	return list
}

// Close ends the runners, which have no jobs any more, and returns when nothing of them is left.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	for _, process := range p.everyone() {
		p.remove(process)
		if process.retire() {
			p.tasks.Go(func() { process.leave(leaveFor) })
		}
	}
	if p.requests != nil {
		_ = p.requests.Close()
	}
	p.tasks.Wait()
	p.launcher.Close()
}

// Process is a runner process as people see it.
type Process struct {
	Runner string `json:"runner"`
	PID    int    `json:"pid"`
	// Forked: by a template; else started by the worker process.
	Forked bool      `json:"forked,omitempty"`
	Born   time.Time `json:"born"`
	Jobs   int       `json:"jobs"`
	Busy   int       `json:"busy"`
	RSS    int64     `json:"rss"`
}

// Processes returns the runner processes.
func (p *Pool) Processes() (list []Process) {
	for _, process := range p.everyone() {
		process.mu.Lock()
		list = append(list, Process{
			Runner: p.o.Name, PID: process.pid, Forked: process.leader == nil, Born: process.born,
			Jobs: process.begun - len(process.calls), Busy: len(process.calls), RSS: process.rss.Load(),
		})
		process.mu.Unlock()
	}
	return list
}

// marks are those of the runners of this process that are not buried.
var marks = struct {
	sync.Mutex
	last int64
	used map[mark.Mark]bool
}{used: map[mark.Mark]bool{}}

// newMark returns a mark that no other runner of this process has.
func newMark(worker mark.Mark) mark.Mark {
	marks.Lock()
	defer marks.Unlock()
	for {
		marks.last++
		if m := worker.Runner(marks.last); !marks.used[m] {
			marks.used[m] = true
			return m
		}
	}
}

func dropMark(m mark.Mark) {
	marks.Lock()
	defer marks.Unlock()
	delete(marks.used, m)
}
