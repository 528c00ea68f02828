package handler

import (
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// setMark marks a process and its descendants: a command may have been fast.
func setMark(pid int, m mark.Mark) error {
	if err := mark.Set(pid, m); err != nil {
		return err
	}
	if !procfs.ListsChildren() {
		return nil // reading all processes for each start would cost too much
	}
	// They are listed after their parent was marked, so later ones inherit the mark.
	children, _ := procfs.Children(pid) // unseen ones cannot be marked
	for _, child := range children {
		if has, _ := mark.Of(child); has != m {
			_ = setMark(child, m)
		}
	}
	return nil
}
