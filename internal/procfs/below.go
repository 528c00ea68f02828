package procfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ours reports whether everything that the worker process may have left descends
// from this process: it is that one's master, and the parent of all orphans.
func (s *Sweeper) ours() bool {
	return s.master != nil && listsChildren() && isSubreaper() && s.master()
}

// below is a survey of the descendants of this process alone: what a whole machine
// costs grows with others' processes, and a lock waits for it. The living worker
// processes other than proc are left out with all that is theirs. It fails where it
// might have overlooked one.
func below(proc string, see func(pid string) (process, bool, error)) (processes, error) {
	found := processes{}
	todo, err := childrenOf("self")
	for err == nil && len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		name := strconv.Itoa(pid)
		p, ok, seen := see(name)
		if err = seen; !ok || p.worker && p.proc != proc {
			continue
		}
		found[pid] = p
		var children []int
		children, err = childrenOf(name)
		todo = append(todo, children...)
	}
	return found, err
}

// blind returns the error if it is one of this process and not of what it looked at:
// who may open no more files sees no processes, and must not think that there are none.
func blind(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return err
	}
	return nil
}

func isSubreaper() bool {
	var is int32
	// Not unix.Prctl: the stack, and with it the variable, may move until that is called.
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0, 0)
	return errno == 0 && is != 0
}

// listsChildren: this kernel has the children files of /proc.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// childrenOf returns the pids of a process's children, dead ones included.
func childrenOf(pid string) (pids []int, err error) {
	tasks, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		return nil, blind(err) // else it has ended since
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/" + pid + "/task/" + task.Name() + "/children")
		if blind(err) != nil {
			return pids, err
		}
		if err != nil {
			continue // a thread that has ended since
		}
		for f := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
