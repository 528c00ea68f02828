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
		if mark.Of(child) != m {
			_ = setMark(child, m)
		}
	}
	return nil
}

// hidden is look for a process that /proc does not show: it reports whether it lives and
// belongs to p.
func (p *process) hidden(pid int, kill bool) bool {
	group, err := unix.Getpgid(pid)
	if err != nil || pid == p.leader.PID || p.mark == 0 || mark.Of(pid) != p.mark {
		return false
	}
	exists, zombie := mark.Hidden(pid)
	switch {
	case !exists || zombie && !kill:
		return false
	case zombie:
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return false
	case kill:
		_ = mark.Kill(pid, p.mark)
		return true
	}
	return group == p.leader.PID
}
