package template

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
)

type process struct {
	cmd      *os.Process
	greeting struct{ Language, App string }
	socket   *os.File
	control  *bufio.Reader
	out      program.Output
	tail     program.Tail
	late     atomic.Bool // it was killed because it was not ready in time
	hung     atomic.Bool // it was killed because it took no request
}

// Supported reports whether this system can have templates.
const Supported = true

func requestPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
}

// firstOf returns the first packet that waits in a socket without removing it; "" = none.
func firstOf(socket *os.File) string {
	head := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(int(socket.Fd()), head, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return ""
	}
	return string(head[:n])
}

// spawn starts a process in its own session. It outlives a dead master, because finishing worker
// processes may still need runners, and ends with its socket of requests.
func (t *Template) spawn() (*process, error) {
	p := &process{}
	if err := t.start(p); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// start starts the process of p. On error, the caller closes p.
func (t *Template) start(p *process) error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	theirs = append(theirs, null)
	for _, stream := range []string{"stdout", "stderr"} {
		w, err := p.out.Pipe(func(r *program.Lasting) {
			var from io.Reader = r
			if stream == "stderr" {
				from = io.TeeReader(r, &p.tail)
			}
			program.LogLines(stream, from, func(fields ...zap.Field) { t.log.Info("template output", fields...) })
		})
		if err != nil {
			return err
		}
		theirs = append(theirs, w)
	}
	ours, socket, err := proc.Socketpair(unix.SOCK_STREAM, "control socket of a template")
	if err != nil {
		return err
	}
	p.socket = os.NewFile(uintptr(ours), "control socket of a template")
	p.control = bufio.NewReaderSize(p.socket, 64<<10)
	theirs = append(theirs, socket)
	path, err := find(t.o.Argv)
	if err != nil {
		return err
	}
	env := append(append([]string{}, t.o.Env...), "RESQUED_FD=3", "RESQUED_FORK_FD=4", "RESQUED_RUNNER="+t.o.Runner,
		"RESQUED_CONCURRENCY="+strconv.Itoa(max(1, t.o.Concurrency)))
	p.cmd, err = os.StartProcess(path, t.o.Argv, &os.ProcAttr{
		Dir: t.o.Dir, Env: env, Files: append(theirs, t.serves), Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %q in %q: %w", t.o.Argv[0], t.o.Dir, err)
	}
	return nil
}

// close waits for the process's output, but not for its runners, which have other pipes, nor for
// foreign processes that hold these open.
func (p *process) close() {
	p.out.Drain()
	if p.socket != nil {
		_ = p.socket.Close()
	}
}
