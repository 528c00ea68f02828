package runner

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Forks: this system has neither marks nor handles of processes, so each runner boots by itself.
const Forks = false

func socketpair() (pair [2]int, err error) {
	pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
		err = unix.SetNonblock(pair[0], true)
	}
	return pair, err
}

func (p *Pool) fork() (*process, error) { return nil, errors.ErrUnsupported }

func sender([]byte) int { return 0 }

// sweep kills the process group of the runner.
func (p *process) sweep() {
	if p.leader != nil {
		p.leader.Signal(killSignal)
	}
	dropMark(p.mark)
}

func resident(int) int64 { return 0 }

func proportional(int) int64 { return 0 }
