package procfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Blind returns err if its cause is in this process, not in the one looked at; else nil. Without free descriptors or memory it sees no processes, and must not conclude that there
// are none.
func Blind(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return err
	}
	return nil
}

// childLister returns a function like Children. If the kernel does not list children,
// childLister reads all processes once.
func childLister() func(pid int) ([]int, error) {
	if ListsChildren() {
		return Children
	}
	return childrenByParent()
}

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
