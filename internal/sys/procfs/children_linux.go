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

// Children returns the children of a process, dead ones included. If it may have overlooked some
// (see Blind), it returns an error with the rest. It needs ListsChildren.
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
// that it started and, for the main thread, adopted orphans. If it returns none, there was a
// moment without any. It needs ListsChildren.
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

// Everyone returns the pids of all processes that this one may see. If it may have overlooked
// some (see Blind), it returns an error with the rest.
func Everyone() (pids []int, err error) {
	list, err := names("/proc")
	for _, name := range list {
		if pid, no := strconv.Atoi(name); no == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// names returns the entries of a directory of a process. It fails only if this process could not
// look, and then returns what it has read; a process that has ended is not an error.
func names(dir string) ([]string, error) {
	names, err := list(dir)
	return names, Blind(err)
}
