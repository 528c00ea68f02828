package handler

import (
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procfs"
)

// setMark marks a process and all below it: a command may have been fast.
func setMark(pid int, m mark.Mark) error {
	if err := mark.Set(pid, m); err != nil {
		return err
	}
	if !procfs.ListsChildren() {
		return nil // a look over all processes for each start would cost too much
	}
	// They are listed after their parent was marked: no later one is without the mark.
	children, _ := procfs.Children(pid) // what cannot be seen cannot be marked
	for _, child := range children {
		if has, _ := mark.Of(child); has != m {
			_ = setMark(child, m)
		}
	}
	return nil
}

// hidden is look for a process that /proc does not show: it reports whether the process lives
// and belongs to p. It fails if this process could not look.
func (p *process) hidden(pid int, kill bool) (ours bool, err error) {
	group, err := unix.Getpgid(pid)
	if err != nil || pid == p.leader.PID || p.mark == 0 {
		return false, nil
	}
	if m, err := mark.Of(pid); m != p.mark {
		return false, procfs.Blind(err)
	}
	exists, zombie := mark.Hidden(pid)
	switch {
	case !exists || zombie && !kill:
		return false, nil
	case zombie:
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return false, nil
	case kill:
		_ = mark.Kill(pid, p.mark)
		return true, nil
	}
	return group == p.leader.PID, nil
}
