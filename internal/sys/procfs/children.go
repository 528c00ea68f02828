package procfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Blind returns err if it is one of this process and not of the process that it looked at,
// else nil. A process that may open no more files, or has no memory for them, sees no
// processes, and must not conclude that there are none.
func Blind(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return err
	}
	return nil
}

// childLister returns a function like Children. On kernels that do not list children it
// looks at all processes once, when childLister is called.
func childLister() func(pid int) ([]int, error) {
	if ListsChildren() {
		return Children
	}
	return childrenByParent()
}

// childrenByParent looks at all processes once.
func childrenByParent() func(pid int) ([]int, error) {
	children := map[int][]int{}
	list, err := Everyone()
	for _, pid := range list {
		s, unread := ReadStat(pid)
		if unread != nil {
			err = errors.Join(err, Blind(unread))
			continue
		}
		children[s.Parent] = append(children[s.Parent], pid)
	}
	return func(pid int) ([]int, error) { return children[pid], err }
}
