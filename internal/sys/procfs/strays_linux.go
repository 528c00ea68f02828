package procfs

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
)

// Reap reaps the strays that are due. Call it from time to time.
func (s *Strays) Reap() (reaped int) {
	pids, _ := childLister()(os.Getpid()) // the next look may see overlooked ones
	return s.reap(pids)
}

// ReapOrphans is Reap for adopted orphans, which are children of the main thread. Call it on
// SIGCHLD: most ended children are not orphans, and reading the children of all threads takes
// several times as long.
func (s *Strays) ReapOrphans() (reaped int) {
	if !ListsChildren() || !handled() { // the latter: all have to be seen for a while
		return s.Reap()
	}
	pids, _ := ThreadChildren(os.Getpid())
	return s.reap(pids)
}

func (s *Strays) reap(pids []int) (reaped int) {
	// How long a zombie is left to code that may wait for it: a child without a handle can die
	// before its parent has told Owned.
	patience := 2 * time.Second
	if handled() {
		patience = 0
	}
	now := BootTime()
	seen := map[ID]time.Duration{}
	var held map[int]bool // read when needed
	for _, pid := range pids {
		if s.Owned != nil && s.Owned(pid) {
			continue
		}
		st, err := ReadStat(pid)
		if Blind(err) != nil {
			continue // the next look may see it
		}
		if err != nil {
			_, zombie := mark.Hidden(pid)
			if !zombie {
				continue
			}
		} else if !st.Zombie() {
			continue
		}
		z := ID{pid, st.Start}
		first, ok := s.seen[z]
		if !ok {
			first = now
		}
		var unseen error
		if held == nil && now-first >= patience {
			held, unseen = handles()
		}
		// After a failed look, some code may still wait for it.
		if now-first < patience || held[pid] || unseen != nil {
			seen[z] = first
			continue
		}
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && got == pid {
			reaped++
		}
	}
	s.seen = seen
	return reaped
}

// handled reports whether Go holds handles on this system. The kernel makes them with the
// process, so a zombie of Go code has one until it is waited for.
var handled = sync.OnceValue(func() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer func() { _ = self.Release() }()
	return self.WithHandle(func(uintptr) {}) == nil
})

// handles returns the pids of the processes on which this one holds a handle (pidfd), as os/exec
// does until it has waited. It fails if it may have overlooked one.
func handles() (held map[int]bool, err error) {
	const dir = "/proc/self/fdinfo/"
	infos, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	held = map[int]bool{}
	for _, info := range infos {
		text, err := os.ReadFile(dir + info.Name())
		if Blind(err) != nil {
			return nil, err
		}
		if err != nil {
			continue // closed since
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Pid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
					held[pid] = true
				}
			}
		}
	}
	return held, nil
}
