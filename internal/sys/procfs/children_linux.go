package procfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ListsChildren reports whether this kernel has the children files of /proc
// (CONFIG_PROC_CHILDREN).
var ListsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// Children returns the children of a process, dead ones included. It fails where it may have
// overlooked some (see Blind), and returns those that it has found. It needs ListsChildren.
func Children(pid int) (pids []int, err error) {
	name := strconv.Itoa(pid)
	threads, err := names("/proc/" + name + "/task")
	for _, thread := range threads {
		var unread error
		if pids, unread = addChildren(pids, name, thread); unread != nil {
			err = errors.Join(err, Blind(unread)) // else the thread has ended since
		}
	}
	return pids, err
}

// ThreadChildren returns the children of one thread of this process, dead ones included: those
// that it has started and, of the first one, the orphans that have come to this process. Where it
// returns none there was an instant without any. It needs ListsChildren.
func ThreadChildren(thread int) ([]int, error) {
	return addChildren(nil, "self", strconv.Itoa(thread))
}

func addChildren(pids []int, pid, thread string) ([]int, error) {
	text, err := read("/proc/" + pid + "/task/" + thread + "/children")
	for f := range strings.FieldsSeq(string(text)) {
		if child, no := strconv.Atoi(f); no == nil {
			pids = append(pids, child)
		}
	}
	return pids, err
}

// Everyone returns the numbers of all processes that this one may see. It fails where it may
// have overlooked some (see Blind).
func Everyone() (pids []int, err error) {
	list, err := names("/proc")
	for _, name := range list {
		if pid, no := strconv.Atoi(name); no == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// names returns what is in a directory of a process. It fails only if this process could not
// look, and returns what could be read: a process that ends meanwhile has no more.
func names(dir string) ([]string, error) {
	names, err := list(dir)
	return names, Blind(err)
}
