// Package template keeps a template of runners in the master: a process that boots the
// application once and forks runners for worker processes (docs/runner-protocol.md). It neither
// runs nor reads jobs.
package template

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	protocol = 1
	// pauseFrom and pauseTo bound the pause between two failed starts.
	pauseFrom = 100 * time.Millisecond
	pauseTo   = 30 * time.Second
	// drainFor is how long to wait for output after the end of a template.
	drainFor = time.Second
	// maxTold bounds the stderr quoted in an error, in bytes.
	maxTold = 2 << 10
)

// hungLooks is how many consecutive looks, lookEvery apart, a template may leave the same
// request unread. Looks are counted instead of time, because a machine that was stopped has
// looked once.
const hungLooks = 10

var lookEvery = time.Second

// leaveFor is how long a template may take to end when it is no longer needed, and again after
// TERM.
var leaveFor = 2 * time.Second

// Options configure a template.
type Options struct {
	Runner string
	// Argv, Dir and Env are the process's. Env is the whole environment without the protocol's
	// variables.
	Argv []string
	Dir  string
	Env  []string
	// Concurrency is how many jobs a runner performs at a time.
	Concurrency int
	// BootTimeout bounds the time to be ready.
	BootTimeout time.Duration
	Log         *zap.Logger
}

// State is the state of a template.
type State string

const (
	Booting State = "booting"
	Ready   State = "ready"
	Failed  State = "failed" // and will be started again
	Ended   State = "ended"
)

// Info describes a template for people.
type Info struct {
	Runner   string    `json:"runner"`
	PID      int       `json:"pid,omitempty"`
	State    State     `json:"state"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
	Restarts int       `json:"restarts,omitempty"`
}

// Template keeps one template running while it is needed.
type Template struct {
	o   Options
	log *zap.Logger
	// requests is the end of the request socket that worker processes inherit. serves is the
	// template's end, passed to each new process: requests wait in between.
	requests, serves *os.File

	ctx    context.Context
	stop   context.CancelFunc
	booted chan struct{} // closed after the first start, ready or failed
	done   chan struct{} // closed when no process is left

	mu      sync.Mutex
	info    Info
	first   error // why the first start failed
	retired bool
	process *os.Process
}

// Start starts a template. End it with Retire or Stop.
func Start(o Options) (*Template, error) {
	pair, err := requestPair()
	if err != nil {
		return nil, fmt.Errorf("template of runner %q: %w", o.Runner, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Template{
		o: o, log: o.Log.With(zap.String("runner", o.Runner)), ctx: ctx, stop: stop,
		serves: os.NewFile(uintptr(pair[0]), "requests to a template"), requests: os.NewFile(uintptr(pair[1]), "requests to a template"),
		booted: make(chan struct{}), done: make(chan struct{}), info: Info{Runner: o.Runner, State: Booting, Since: time.Now()},
	}
	go t.keep()
	return t, nil
}

// Requests returns the socket on which worker processes request runners. Retire closes it.
func (t *Template) Requests() *os.File { return t.requests }

// Booted waits until the template is ready, or returns the error of its first start.
func (t *Template) Booted(ctx context.Context) error {
	select {
	case <-t.booted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

// Info returns the template's state.
func (t *Template) Info() Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.info
}

// Retire says that no more worker processes need the template. It ends after the last one that
// has inherited its socket.
func (t *Template) Retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.retired {
		t.retired = true
		_ = t.requests.Close()
	}
}

// Stop ends the template, in good order if no worker process is left, and returns when it is
// gone.
func (t *Template) Stop() {
	t.Retire()
	// A booting process does not read its socket, and no runner needs it.
	if t.Info().State == Booting || !t.gone(leaveFor) {
		t.signal(unix.SIGTERM)
		if !t.gone(leaveFor) {
			t.signal(unix.SIGKILL)
		}
	}
	t.stop()
	<-t.done
}

func (t *Template) gone(within time.Duration) bool {
	t.mu.Lock()
	idle := t.process == nil
	t.mu.Unlock()
	if idle {
		return true // it waits for its next start
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-t.done:
		return true
	case <-late.C:
		return false
	}
}

func (t *Template) signal(sig syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process != nil {
		_ = t.process.Signal(sig)
	}
}

func (t *Template) keep() {
	defer close(t.done)
	defer func() { _ = t.serves.Close() }()
	pause := pauseFrom
	for {
		err := t.run()
		t.mu.Lock()
		since := t.info.Since
		over := t.retired && (err == nil || t.info.State != Ready) || t.ctx.Err() != nil
		wasReady := t.info.State == Ready
		t.info.State, t.info.Since, t.info.PID, t.info.Why = Failed, time.Now(), 0, ""
		switch {
		case over:
			t.info.State = Ended
		case err != nil:
			t.info.Why = err.Error()
		default:
			t.info.Why = "it has ended with exit code 0, although it is needed"
		}
		if !over && !wasReady && t.first == nil {
			t.first = fmt.Errorf("runner %q cannot be started by %q: %s", t.o.Runner, t.o.Argv, t.info.Why)
		}
		why := t.info.Why
		t.info.Restarts++
		t.mu.Unlock()
		t.tried()
		if over {
			return
		}
		// A template that ends soon after it was ready, however long its boot took, also backs
		// off.
		if wasReady && time.Since(since) > 10*pause {
			pause = pauseFrom
		}
		wait := pause/2 + rand.N(pause/2)
		pause = min(2*pause, pauseTo)
		t.log.Error("a template of runners has ended; its jobs wait until it is there again",
			zap.Strings("command", t.o.Argv), zap.String("because", why), zap.Bool("was_ready", wasReady), zap.Duration("again_in", wait))
		select {
		case <-time.After(wait):
		case <-t.ctx.Done():
		}
		t.mu.Lock()
		t.info.State, t.info.Since = Booting, time.Now()
		t.mu.Unlock()
	}
}

func (t *Template) tried() {
	select {
	case <-t.booted:
	default:
		close(t.booted)
	}
}

// run runs one process to its end; nil for exit code 0.
func (t *Template) run() error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	p, err := t.spawn()
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.process, t.info.PID = p.cmd, p.cmd.Pid
	t.mu.Unlock()
	// Stop may have come before there was a process to signal.
	defer context.AfterFunc(t.ctx, func() { _ = p.cmd.Kill() })()
	slow := time.AfterFunc(t.o.BootTimeout, func() {
		p.late.Store(true)
		_ = p.cmd.Kill()
	})
	began := time.Now()
	var status *os.ProcessState
	var waited error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		status, waited = p.cmd.Wait()
		// A fork may hold the other end.
		_ = p.socket.SetReadDeadline(time.Now().Add(drainFor))
	}()
	err = p.hello()
	if err == nil && slow.Stop() {
		t.mu.Lock()
		t.info.State, t.info.Since, t.info.Why = Ready, time.Now(), ""
		t.mu.Unlock()
		t.tried()
		t.log.Info("template of runners ready", zap.Int("pid", p.cmd.Pid), zap.Duration("took", time.Since(began)),
			zap.String("language", wire.Printable(p.greeting.Language, 100)), zap.String("app", wire.Printable(p.greeting.App, 200)))
		var looks sync.WaitGroup
		looks.Go(func() { t.watch(p, ended) })
		p.listen(t.log)
		<-ended
		looks.Wait()
	} else if err != nil {
		// A process that ends by itself closes its socket a moment earlier. Its exit code says
		// more than a signal from here.
		if errors.Is(err, io.EOF) {
			select {
			case <-ended:
			case <-time.After(drainFor):
			}
		}
		_ = p.cmd.Kill()
	}
	slow.Stop()
	<-ended
	t.mu.Lock()
	t.process = nil
	t.mu.Unlock()
	// Kills other processes of the application; runners lead their own sessions.
	_ = unix.Kill(-p.cmd.Pid, unix.SIGKILL)
	p.close()
	return t.judge(p, err, status, waited)
}

// watch kills a ready template that takes no request, because it was stopped or hangs around a
// fork. The next process finds the request; if the request was taken, the worker process asks
// again.
func (t *Template) watch(p *process, ended <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last, same := "", 0
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		head := firstOf(t.serves)
		if head == "" || head != last {
			last, same = head, 0
			continue
		}
		if same++; same >= hungLooks {
			p.hung.Store(true)
			_ = p.cmd.Kill()
			return
		}
	}
}

// judge returns how a process has ended, as an error.
func (t *Template) judge(p *process, unsaid error, status *os.ProcessState, waited error) error {
	var text string
	switch {
	case p.late.Load():
		text = fmt.Sprintf("it was not ready after %s (boot_timeout)", t.o.BootTimeout)
	case p.hung.Load():
		text = fmt.Sprintf("it hung: it has not taken a request for a runner for %s", hungLooks*lookEvery)
	case unsaid != nil && !errors.Is(unsaid, io.EOF):
		text = unsaid.Error()
	case waited != nil:
		text = waited.Error()
	case status.ExitCode() == 0 && unsaid != nil:
		text = "it has ended with exit code 0 before it was ready"
	case status.ExitCode() == 0:
		return nil
	case status.ExitCode() > 0:
		text = "exit code " + strconv.Itoa(status.ExitCode())
	default:
		text = status.String()
	}
	if end := p.tail.Text(); end != "" {
		text += "; the end of its stderr:\n" + program.Ends(end, maxTold)
	}
	return errors.New(text)
}

func (p *process) hello() error {
	line, err := p.control.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return errors.New("its first line is too long")
		}
		return io.EOF
	}
	var said struct {
		Hello *struct {
			Protocol int    `json:"protocol"`
			Template bool   `json:"template"`
			Language string `json:"language"`
			App      string `json:"app"`
		} `json:"hello"`
	}
	err = json.Unmarshal(line, &said)
	switch {
	case err != nil:
	case said.Hello == nil || !said.Hello.Template:
		err = errors.New("it is not the hello of a template: does this program know fork: true? Set fork: false for one that does not")
	case said.Hello.Protocol != protocol:
		err = fmt.Errorf("it speaks version %d of the protocol, and this program version %d", said.Hello.Protocol, protocol)
	default:
		p.greeting.Language, p.greeting.App = said.Hello.Language, said.Hello.App
	}
	if err != nil {
		return fmt.Errorf("its first line was %q: %w", wire.Printable(string(line), 200), err)
	}
	return nil
}

func (p *process) listen(log *zap.Logger) {
	for {
		line, err := p.control.ReadSlice('\n')
		var said struct {
			Log *struct {
				Level   string `json:"level"`
				Message string `json:"message"`
			} `json:"log"`
			Error string `json:"error"`
		}
		if json.Unmarshal(line, &said) == nil {
			switch {
			case said.Error != "":
				log.Warn("a template does not understand", zap.String("says", wire.Printable(said.Error, 1000)))
			case said.Log != nil && strings.HasPrefix(said.Log.Level, "warn"), said.Log != nil && said.Log.Level == "error":
				log.Warn("template log", zap.String("line", wire.Printable(said.Log.Message, program.MaxLine)))
			case said.Log != nil:
				log.Info("template log", zap.String("line", wire.Printable(said.Log.Message, program.MaxLine)))
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func find(argv []string) (string, error) {
	if strings.Contains(argv[0], "/") {
		return argv[0], nil
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return "", fmt.Errorf("%q is not on the daemon's PATH; install it, or name it by its whole path", argv[0])
	}
	return path, nil
}
