package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/workerproc"
)

// process is a worker process: its goroutines end when its life does, and until then nothing of what they do
// after a kill reaches anybody.
type process struct {
	daemon *daemon
	name   string
	pid    int
	link   *link
	store  *store.Store
	stop   context.CancelFunc

	down, up chan proc.Message
	orphan   chan struct{} // closed when its master is dead
	gone     chan struct{} // closed when it is dead
	quit     sync.Once
	alone    sync.Once
	exit     proc.Exit
	buried   bool // the ledger knows that it is dead
}

func (d *daemon) spawn(name string) (*process, error) {
	w := d.host.world
	p := &process{
		daemon: d, name: name, pid: w.nextPID(), link: newLink(w.redis, d.host.link),
		down: make(chan proc.Message, 256), up: make(chan proc.Message, 1024), orphan: make(chan struct{}), gone: make(chan struct{}),
	}
	s, err := w.open(p.link)
	if err != nil {
		return nil, err
	}
	p.store = s
	cfg := d.worker
	cfg.PID = p.pid
	wp, err := workerproc.New(cfg, workerproc.Deps{
		Limits: w.limits,
		Store:  s, Conn: (*workerEnd)(p), Handlers: w.classes, Stats: noStats{}, Signals: make(chan os.Signal), Tenants: tenants{}, Log: zap.NewNop(), SetTitle: func(string) {},
		Runner: &thread.Runner{Performer: performer{p}, Describe: func(err error) (string, string, []string) { return "Error", err.Error(), nil }},
		Exit:   func() { p.die(proc.Exit{Code: 1}) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	w.running.Go(func() {
		code := 0
		if err := wp.Run(ctx); err != nil {
			code = 1
			w.ledger.note("%s ends: %v", p.name, err)
		}
		p.die(proc.Exit{Code: code})
		_ = s.Close()
	})
	d.mu.Lock()
	d.processes = append(d.processes, p)
	d.mu.Unlock()
	return p, nil
}

// die ends the process, as an exit or SIGKILL does.
func (p *process) die(e proc.Exit) {
	p.quit.Do(func() {
		p.exit = e
		p.daemon.host.world.ledger.died(p)
		close(p.gone)
		p.link.kill()
		p.stop()
	})
}

func (p *process) kill() { p.die(proc.Exit{Code: -1, Signal: syscall.SIGKILL}) }

// orphaned tells the process that its master is dead.
func (p *process) orphaned() { p.alone.Do(func() { close(p.orphan) }) }

func (p *process) dead() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// workerEnd is the process's end of the socket to its master.
type workerEnd process

func (e *workerEnd) Send(m proc.Message) error {
	select {
	case <-e.gone:
		return syscall.EPIPE
	case <-e.orphan:
		return syscall.EPIPE
	case e.up <- m:
		return nil
	default:
		return proc.ErrFull
	}
}

func (e *workerEnd) Recv() (proc.Message, error) {
	select {
	case m := <-e.down:
		return m, nil
	case <-e.orphan:
	case <-e.gone:
	}
	return proc.Message{}, io.EOF
}

// child is the master's view of the process.
type child struct{ *process }

func (c child) PID() int { return c.pid }

func (c child) Send(m proc.Message) error {
	select {
	case <-c.gone:
		return syscall.EPIPE
	case c.down <- m:
		return nil
	default:
		return proc.ErrFull
	}
}

func (c child) Recv() (proc.Message, error) {
	select {
	case m := <-c.up:
		return m, nil
	default:
	}
	select {
	case m := <-c.up:
		return m, nil
	case <-c.gone:
	case <-c.orphan: // this master is dead
	}
	select {
	case m := <-c.up:
		return m, nil
	default:
		return proc.Message{}, io.EOF
	}
}

func (c child) Kill() error {
	if !c.daemon.isDead() {
		c.kill()
	}
	return nil
}

func (child) Sweep(context.Context) (int, error) { return 0, nil }
func (child) CloseRead() error                   { return nil }
func (child) Close() error                       { return nil }

func (c child) Wait() proc.Exit {
	select {
	case <-c.gone:
		return c.exit
	case <-c.orphan:
		return proc.Exit{Code: -1, Signal: syscall.SIGKILL}
	}
}

var _ master.Child = child{}

// performer is the code of all jobs. A job sleeps, and then fails or not, by its class.
type performer struct{ p *process }

var (
	errFails = errors.New("it fails, as it is meant to")
	errDead  = errors.New("the process is dead")
)

func (h performer) Perform(ctx context.Context, job *resqued.Job, done func(error)) {
	done(h.run(ctx, job))
}

func (performer) Refuse(_ context.Context, _ *resqued.Job, err error) error { return err }

func (h performer) run(ctx context.Context, job *resqued.Job) error {
	var args struct {
		Key     string
		Seconds float64
	}
	if err := job.Args.Decode(&args); err != nil {
		return err
	}
	run := h.p.daemon.host.world.ledger.start(h.p, job)
	if run == nil {
		return errDead
	}
	if job.Class == "Crash" {
		h.p.kill()
	}
	select {
	case <-time.After(time.Duration(args.Seconds * float64(time.Second))):
	case <-ctx.Done():
		run.end(false)
		return context.Cause(ctx)
	case <-h.p.gone:
		return errDead
	}
	run.end(job.Class != "Fails")
	if job.Class == "Fails" {
		return errFails
	}
	return nil
}

type classes struct{}

func (classes) Lookup(class string, _ ...string) (*resqued.Class, bool) {
	return &resqued.Class{Name: class, AtMostOnce: class == "Once"}, true
}

type noStats struct{}

func (noStats) Job(string, string, time.Duration, time.Duration) {}
func (noStats) Count(string, int)                                {}
func (noStats) Died(string, string)                              {}
func (noStats) Repaired(int)                                     {}
