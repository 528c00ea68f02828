package runner

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/launch"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/wire"
)

const killSignal = unix.SIGKILL

// setUp has orphans of runners come to this process. It cannot fail on a kernel that Go runs on.
func setUp() { _ = procfs.Subreaper() }

// boot starts a process and waits until it greets.
func (p *Pool) boot() (*process, error) {
	if p.direct {
		return p.launch()
	}
	process, err := p.fork()
	if errors.Is(err, errUnmarked) {
		p.log.Warn("runners cannot be marked here, by which they are found when this process has died; each boots by itself, as with fork: false",
			zap.Error(err))
		p.direct = true
		return p.launch()
	}
	return process, err
}

// errUnmarked: a process cannot be marked.
var errUnmarked = errors.New("the limit of file locks cannot be set")

// newProcess returns one with a socket and pipes, and the ends that are the runner's: its socket,
// standard output and standard error.
func (p *Pool) newProcess() (process_ *process, theirs []*os.File, err error) {
	c := &process{
		pool: p, born: time.Now(), mark: newMark(p.mark), log: p.log, calls: map[int64]*call{}, gone: make(chan struct{}),
	}
	fail := func(err error) (*process, []*os.File, error) {
		for _, f := range theirs {
			_ = f.Close()
		}
		c.abandon()
		return nil, nil, err
	}
	pair, err := socketpair()
	if err != nil {
		return fail(fmt.Errorf("socket: %w", err))
	}
	theirs = append(theirs, os.NewFile(uintptr(pair[1]), "socket of a runner"))
	ours := os.NewFile(uintptr(pair[0]), "socket to a runner")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return fail(fmt.Errorf("socket: %w", err))
	}
	c.conn = conn.(*net.UnixConn) //nolint:forcetypeassert // what socketpair makes
	stdout, stderr, err := c.output.open(c)
	if err != nil {
		return fail(fmt.Errorf("pipe: %w", err))
	}
	return c, append(theirs, stdout, stderr), nil
}

// abandon closes what belongs to a process that did not come to be.
func (p *process) abandon() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.output.close()
	dropMark(p.mark)
}

// launch starts a process that boots by itself.
func (p *Pool) launch() (*process, error) {
	c, theirs, err := p.newProcess()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		c.abandon()
		return nil, err
	}
	// Its children carry the name of this process, by which they can be found.
	env := append(append([]string{}, p.o.Env...), "RESQUED_FD=3", "RESQUED_RUNNER="+p.o.Name,
		"RESQUED_CONCURRENCY="+strconv.Itoa(p.o.Concurrency), procfs.ProcEnv+"="+p.o.Proc)
	p.mu.Lock() // nobody may reap it meanwhile
	c.leader, err = p.launcher.Start(launch.Program{
		Argv: p.o.Argv, Env: env, Dir: p.o.Dir, Files: []*os.File{null, theirs[1], theirs[2], theirs[0]}, Locks: uint64(c.mark),
	})
	if err == nil {
		c.pid = c.leader.PID
		p.leaders[c.pid] = true
	}
	p.mu.Unlock()
	for _, f := range append(theirs, null) {
		_ = f.Close()
	}
	if err != nil {
		c.leader = nil
		c.abandon()
		return nil, err
	}
	c.exited = make(chan struct{})
	p.tasks.Go(func() {
		defer close(c.exited)
		c.leader.AwaitExit()
	})
	c.log = c.log.With(zap.Int("runner_pid", c.pid))
	if _, err := c.greet(); err != nil {
		return nil, c.stillborn(err)
	}
	return c, nil
}

// stillborn ends a process that has not greeted, and returns why not.
func (p *process) stillborn(why error) error {
	p.kill()
	p.sweep()
	text := why.Error()
	if p.leader != nil {
		<-p.exited
		status, err := p.leader.Wait()
		p.pool.disown(p.pid)
		var failed *launch.Error
		switch {
		case errors.As(err, &failed):
			text = failed.Error()
		case err != nil:
			text = err.Error()
		case errors.Is(why, errEnded) && status.Signaled():
			text = "ended by " + unix.SignalName(status.Signal())
		case errors.Is(why, errEnded):
			text = "exit code " + strconv.Itoa(status.ExitStatus())
		}
	}
	p.abandonOutput()
	if end := p.output.tail.text(); end != "" {
		text += "; the end of its stderr:\n" + end
	}
	if p.handle != nil {
		_ = p.handle.Release()
	}
	return errors.New(text)
}

func (p *process) abandonOutput() { p.abandon() }

// greet waits for the first line of a runner and returns the pid that the kernel says has written
// it; 0 where it does not say.
func (p *process) greet() (pid int, err error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.pool.o.BootTimeout)); err != nil {
		return 0, err
	}
	var got []byte
	buf, control := make([]byte, 64<<10), make([]byte, 256)
	for !bytes.ContainsRune(got, '\n') {
		n, controls, _, _, err := p.conn.ReadMsgUnix(buf, control)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, fmt.Errorf("it has not said hello within %s (boot_timeout)", p.pool.o.BootTimeout)
		case n == 0 || err != nil:
			return 0, errEnded
		}
		if pid == 0 {
			pid = sender(control[:controls])
		}
		if got = append(got, buf[:n]...); len(got) > maxAnswer {
			return 0, errors.New("its first line is too long")
		}
	}
	if err := p.conn.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	line, rest, _ := bytes.Cut(got, []byte("\n"))
	m, err := parse(line)
	switch {
	case err == nil && m.kind != hello:
		err = errors.New("that is no hello")
	case err == nil && m.hello.Protocol != Protocol:
		err = fmt.Errorf("it speaks version %d of the protocol, and this program version %d", m.hello.Protocol, Protocol)
	}
	if err != nil {
		return 0, fmt.Errorf("its first line was %q: %w", wire.Printable(string(line), 200), err)
	}
	p.hello = m.hello
	p.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(rest), p.conn), 64<<10)
	return pid, nil
}
