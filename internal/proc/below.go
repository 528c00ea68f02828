package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ours tells whether everything that the worker process proc may have left descends
// from this process: it is that one's master, and the parent of all orphans.
func ours(proc string) bool {
	master, err := ParseIdentity(proc)
	if err != nil || master.PID != os.Getpid() || !listsChildren() || !isSubreaper() {
		return false
	}
	self, err := Self()
	return err == nil && master == self
}

// below is a survey of the descendants of this process alone: what a whole machine
// costs grows with others' processes, and a lock waits for it. The living worker
// processes other than proc are left out with all that is theirs.
func below(proc string) processes {
	found := processes{}
	for todo := childrenOf("self"); len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		name := strconv.Itoa(pid)
		p, ok := see(name)
		if !ok || p.worker && p.proc != proc {
			continue
		}
		found[pid] = p
		todo = append(todo, childrenOf(name)...)
	}
	return found
}

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

// listsChildren: this kernel has the children files of /proc.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// childrenOf returns the pids of a process's children, dead ones included.
func childrenOf(pid string) []int {
	var pids []int
	lists, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended since
		}
		for f := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
