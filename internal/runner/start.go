package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/sys/program"
)

// tagEnv is the variable that identifies a process's descendants on systems without marks.
const tagEnv = "RESQUED_RUNNER_PROCESS"

type started struct {
	*launch.Process
	q *process
}

func (q *process) start(files []*os.File) error {
	p := q.pool
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	env := append(append([]string(nil), p.o.Environ...), p.o.Env...)
	env = append(env, "RESQUED_FD="+strconv.Itoa(program.FirstFree), "RESQUED_RUNNER="+p.o.Name,
		"RESQUED_CONCURRENCY="+strconv.Itoa(p.o.Concurrency), procfs.ProcEnv+"="+p.o.Proc, tagEnv+"="+q.tag)
	leader, err := p.launcher.Start(launch.Program{
		Argv: p.o.Argv, Env: env, Dir: p.o.Dir, Files: []*os.File{null, files[1], files[2], files[0]}, Locks: uint64(q.mark),
	})
	if failed, ok := errors.AsType[*launch.Error](err); ok {
		return program.Explain(failed, p.o.Argv[0], p.o.Dir, "runners")
	}
	if err != nil {
		return err
	}
	if m, _ := mark.Of(leader.PID); m != q.mark {
		_ = mark.Set(leader.PID, q.mark) // the standard library has started it
	}
	p.leaders.Store(leader.PID, q)
	q.pid.Store(int64(leader.PID))
	q.handle = &started{Process: leader, q: q}
	return nil
}

// kill implements handle. The pid cannot be reused before reap.
func (s *started) kill() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.Process != nil {
		s.Signal(unix.SIGKILL)
	}
}

func (s *started) await() {
	if s.Process != nil {
		s.AwaitExit()
	}
}

func (s *started) reap() (string, error) {
	p := s.Process
	s.q.mu.Lock()
	s.Process = nil
	s.q.mu.Unlock()
	status, err := p.Wait()
	s.q.pool.leaders.Delete(p.PID)
	if failed, ok := errors.AsType[*launch.Error](err); ok {
		o := s.q.pool.o
		return program.Explain(failed, o.Argv[0], o.Dir, "runners").Error(), err
	}
	return describe(status), err
}

// reported returns the template's report of the process's end; "" if the template is gone or
// hangs.
func (q *process) reported() string {
	defer func() { _ = q.status.Close() }()
	_ = q.status.SetReadDeadline(time.Now().Add(exitFor))
	var status syscall.WaitStatus
	if _, err := fmt.Fscanln(q.status, &status); err != nil {
		return ""
	}
	return describe(status)
}

func describe(status syscall.WaitStatus) string {
	switch {
	case status.Signaled():
		return "was " + program.EndedBy(status.Signal(), status.CoreDump())
	case status.Exited():
		return fmt.Sprintf("exited with code %d", status.ExitStatus())
	}
	return ""
}
