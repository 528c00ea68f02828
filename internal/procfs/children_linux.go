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

// everyone returns the numbers of all processes that this one may see.
func everyone() (pids []int, err error) {
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
	d, err := os.Open(dir)
	if err != nil {
		return nil, Blind(err)
	}
	defer func() { _ = d.Close() }()
	list, err := d.Readdirnames(-1)
	return list, Blind(err)
}
