package procfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

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

// ListsChildren reports whether this kernel has the children files of /proc
// (CONFIG_PROC_CHILDREN).
var ListsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// Children returns the children of a process, dead ones included. It fails where it may have
// overlooked some (see Blind), and returns those that it has found. It needs ListsChildren.
func Children(pid int) ([]int, error) { return childrenOf(strconv.Itoa(pid)) }

// ChildLister returns a function like Children. On kernels that do not list children it
// looks at all processes once, when ChildLister is called.
func ChildLister() func(pid int) ([]int, error) {
	if ListsChildren() {
		return Children
	}
	return childrenByParent()
}

// childrenOf is Children; pid may be "self".
func childrenOf(pid string) (pids []int, err error) {
	threads, err := names("/proc/" + pid + "/task")
	for _, thread := range threads {
		text, unread := os.ReadFile("/proc/" + pid + "/task/" + thread + "/children")
		if unread != nil {
			err = errors.Join(err, Blind(unread)) // else the thread has ended since
			continue
		}
		for f := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, err
}

// childrenByParent looks at all processes once.
func childrenByParent() func(pid int) ([]int, error) {
	children := map[int][]int{}
	list, err := names("/proc")
	for _, name := range list {
		pid, no := strconv.Atoi(name)
		if no != nil {
			continue
		}
		s, unread := readStat(name)
		if unread != nil {
			err = errors.Join(err, Blind(unread))
			continue
		}
		children[s.Parent] = append(children[s.Parent], pid)
	}
	return func(pid int) ([]int, error) { return children[pid], err }
}

// names returns what is in a directory of a process. It fails only if this process could not
// look, and returns what could be read: a process that ends meanwhile has no more.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, Blind(err)
	}
	defer func() { _ = d.Close() }()
	list, err := d.Readdirnames(-1)
	return list, Blind(err)
}
