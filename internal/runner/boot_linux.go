package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procfs"
)

// Forks: this system can fork runners from templates.
const Forks = true

func socketpair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// fork asks the template for a process. It is marked before it gets a job: from then on it can be
// found, and all that it starts, whoever has died.
func (p *Pool) fork() (*process, error) {
	c, theirs, err := p.newProcess()
	if err != nil {
		return nil, err
	}
	err = c.credentials()
	if err == nil {
		err = p.request(theirs)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		c.abandon()
		return nil, err
	}
	pid, err := c.greet()
	if err != nil {
		if errors.Is(err, errEnded) {
			err = errors.New("the template has ended, or could not fork")
		}
		return nil, c.stillborn(err)
	}
	if err := c.adopt(pid); err != nil {
		return nil, c.stillborn(err)
	}
	return c, nil
}

// credentials has the kernel say who writes to the socket.
func (p *process) credentials() error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, refused)
}

// sender returns who has written a message.
func sender(control []byte) (pid int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for i := range messages {
		if credentials, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return int(credentials.Pid)
		}
	}
	return 0
}

// request sends the template a request with the descriptors of a runner.
func (p *Pool) request(files []*os.File) error {
	var fork struct {
		Fork struct {
			Concurrency int               `json:"concurrency"`
			Env         map[string]string `json:"env"`
		} `json:"fork"`
	}
	fork.Fork.Concurrency, fork.Fork.Env = p.o.Concurrency, map[string]string{procfs.ProcEnv: p.o.Proc}
	text, err := json.Marshal(fork)
	if err != nil {
		return err
	}
	descriptors := make([]int, len(files))
	for i, f := range files {
		descriptors[i] = int(f.Fd())
	}
	if err := p.requests.SetWriteDeadline(time.Now().Add(p.o.BootTimeout)); err != nil {
		return err
	}
	if _, _, err := p.requests.WriteMsgUnix(text, unix.UnixRights(descriptors...), nil); err != nil {
		return fmt.Errorf("ask the template for a process: %w", err)
	}
	return nil
}

// adopt takes hold of the process that has greeted.
func (p *process) adopt(pid int) error {
	if pid <= 0 {
		return errors.New("the kernel does not say which process it is: it is in another PID namespace")
	}
	handle, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	p.pid, p.handle = pid, handle
	p.log = p.log.With(zap.Int("runner_pid", pid))
	if err := mark.Set(pid, p.mark); err != nil {
		return fmt.Errorf("%w: %w", errUnmarked, err)
	}
	// Whoever holds the socket's other end lives: it is the process itself, or one that it has
	// forked since, and the number was not another's when the handle was opened.
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return err
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = n == 0 && err == nil
		return true
	})
	if err == nil && ended {
		err = errEnded
	}
	return err
}

// sweep kills all that has the mark of the process and returns when nothing of it runs any more.
// Forked ones are below the template, their orphans below the master, those of one that was started
// below this process: all are below this one's parent.
func (p *process) sweep() {
	began, said := time.Now(), false
	for clean, pause := 0, time.Millisecond; clean < cleanPasses; {
		left, err := p.look()
		if left == 0 && err == nil {
			clean++
			continue
		}
		clean = 0
		if !said && time.Since(began) > complainAfter {
			said = true
			p.log.Warn("processes of a runner were killed but do not die; its jobs stay open until they end", zap.Int("pid", left), zap.Error(err))
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	dropMark(p.mark)
}

const (
	// cleanPasses is how often in a row a look must find nothing: a process may fork behind the
	// reader's back.
	cleanPasses = 3
	// complainAfter is when it is said that killed processes do not die.
	complainAfter = 5 * time.Second
)

// look kills what has the mark and returns one of those that are still there; 0 = none.
func (p *process) look() (left int, err error) {
	children := procfs.ChildLister()
	seen := map[int]bool{}
	todo := []int{os.Getppid(), os.Getpid()}
	if p.pid > 0 {
		todo = append(todo, p.pid)
	}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[pid] || pid <= 1 {
			continue
		}
		seen[pid] = true
		pids, unseen := children(pid)
		todo = append(todo, pids...)
		err = errors.Join(err, unseen)
		has, unmarked := mark.Of(pid)
		err = errors.Join(err, procfs.Blind(unmarked))
		if has != p.mark && (pid != p.pid || p.handle == nil || has != 0) {
			continue
		}
		st, unread := procfs.ReadStat(pid)
		err = errors.Join(err, procfs.Blind(unread))
		if exists, zombie := mark.Hidden(pid); unread == nil && st.Dead() || unread != nil && (!exists || zombie) {
			continue
		}
		if has == p.mark {
			_ = mark.Kill(pid, p.mark)
		}
		left = pid
	}
	return left, err
}
