package procfs

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/resqued/resqued/internal/sys/mark"
)

// EndDescendants kills with SIGKILL what this process has started, for one that is about
// to end itself, and may have no master to sweep after it. It does not wait for the ends of what it kills.
func EndDescendants() {
	own, _ := mark.Of(os.Getpid()) // a process may always ask for its own
	s := Sweep{Mark: own.Worker(), Judge: func(Seen) (Verdict, error) { return Ours, nil }}
	for range 10 * cleanLooks { // it can start others meanwhile, but not for ever
		before := s.killed
		if _, _, err := s.look(s.kill); err == nil && s.killed == before {
			return
		}
	}
}

// Sweeper ends what one worker process has started, however often it has to look.
type Sweeper struct {
	proc   string
	master func() bool

	mu    sync.Mutex
	sweep Sweep
}

// NewSweeper returns a Sweeper of the worker process proc. master, if not nil, reports
// whether this process is the master of that one.
func NewSweeper(proc string, master func() bool) *Sweeper {
	w := &Sweeper{proc: proc, master: master}
	w.sweep = Sweep{From: w.from, Mark: mark.Worker(proc), Judge: w.judge}
	return w
}

// Started says that this process has just started the worker process, with that number.
// From here on Sweep neither kills nor waits for it.
func (w *Sweeper) Started(pid int) {
	// If this fails, as where no more files may be opened, it is known by its environment.
	if st, err := ReadStat(pid); err == nil {
		w.sweep.Root = ID{pid, st.Start}
		spawned.Store(w.sweep.Root, w.proc)
	}
}

// Reaped says that the worker process was waited for: its number may be another's.
func (w *Sweeper) Reaped() { spawned.Delete(w.sweep.Root) }

// Sweep kills with SIGKILL every process that belongs to the worker process
// and returns when none is left, or with an error when ctx ends before. The
// worker process itself counts too, unless Started has named it. killed
// counts the processes to which it was sent.
//
// Out of reach is only a process that has taken off its mark (see package mark), emptied
// its environment, and outlives its parent.
func (w *Sweeper) Sweep(ctx context.Context) (killed int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if killed, err = w.sweep.Run(ctx); err != nil {
		err = fmt.Errorf("sweep %s: %w", w.proc, err)
	}
	return killed, err
}

// from returns this process if everything that the worker process may have left descends from
// it, because it is its master, and the parent of all orphans. Else it returns all processes: that
// costs more the more of them others have, and a lock waits for it.
func (w *Sweeper) from() (pids []int, walk bool, err error) {
	if w.master != nil && ListsChildren() && isSubreaper() && w.master() {
		return []int{os.Getpid()}, true, nil
	}
	pids, err = Everyone()
	return pids, false, err
}

// judge goes by the tag that a process has in its environment, or its nearest ancestor that has one.
func (w *Sweeper) judge(p Seen) (Verdict, error) {
	t, err := readTag(p.ID, p.Stat)
	switch {
	case err != nil:
		return Other, err
	case t.proc == w.proc:
		return Ours, nil
	case t.worker:
		return Spared, nil
	case t.proc != "" || !t.Dying && !t.Executing:
		return Other, nil
	}
	// It cannot be asked now. If its nearest ancestor with a tag is ours, the look comes from there, too.
	for at, steps := p.Parent, 0; at != os.Getpid() && steps < 1000; steps++ {
		st, err := ReadStat(at)
		switch {
		case err != nil && t.Executing:
			return Unclear, Blind(err)
		case err != nil: // threads of the kernel, too, look like dying processes
			return Other, Blind(err)
		}
		above, err := readTag(ID{at, st.Start}, st)
		if err != nil || above.proc != "" && above.proc != w.proc {
			return Other, err
		}
		if above.proc != "" {
			break
		}
		at = st.Parent
	}
	return Unclear, nil // here, a dying one may have been anybody's
}
