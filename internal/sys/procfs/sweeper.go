package procfs

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/resqued/resqued/internal/sys/mark"
)

// EndDescendants sends SIGKILL to this process's descendants, for a process that is about to end
// and may have no master to sweep after it. It does not wait for their ends.
func EndDescendants() {
	own, _ := mark.Of(os.Getpid()) // always readable for this process
	s := Sweep{Mark: own.Worker(), Judge: func(Seen) (Verdict, error) { return Ours, nil }}
	for range 10 * cleanLooks { // they can start others, but not for ever
		before := s.killed
		if _, _, err := s.look(s.kill); err == nil && s.killed == before {
			return
		}
	}
}

// Sweeper ends what one worker process has started, in any number of looks.
type Sweeper struct {
	proc   string
	master func() bool

	mu    sync.Mutex
	sweep Sweep
}

// NewSweeper returns a Sweeper for the worker process proc. master, if not nil, reports whether
// this process is its master.
func NewSweeper(proc string, master func() bool) *Sweeper {
	w := &Sweeper{proc: proc, master: master}
	w.sweep = Sweep{From: w.from, Mark: mark.Worker(proc), Judge: w.judge}
	return w
}

// Started says that this process has just started the worker process, as pid. From then on Sweep
// neither kills nor waits for it.
func (w *Sweeper) Started(pid int) {
	// On failure, such as without free descriptors, its environment identifies it.
	if st, err := ReadStat(pid); err == nil {
		w.sweep.Root = ID{pid, st.Start}
		spawned.Store(w.sweep.Root, w.proc)
	}
}

// Reaped says that the worker process was reaped: its pid may be reused.
func (w *Sweeper) Reaped() { spawned.Delete(w.sweep.Root) }

// Sweep sends SIGKILL to every process that belongs to the worker process, and to that one
// unless Started has named it. It returns when none is left, or with an error when ctx ends.
// killed counts the signalled processes.
//
// Out of reach is only a process that has removed its mark (see package mark), emptied its
// environment and outlives its parent.
func (w *Sweeper) Sweep(ctx context.Context) (killed int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if killed, err = w.sweep.Run(ctx); err != nil {
		err = fmt.Errorf("sweep %s: %w", w.proc, err)
	}
	return killed, err
}

// from returns only this process if it is the master and adopts all orphans: then everything to
// sweep descends from it. Otherwise it returns all processes. That costs more with every other
// process, and a lock waits for it.
func (w *Sweeper) from() (pids []int, walk bool, err error) {
	if w.master != nil && ListsChildren() && isSubreaper() && w.master() {
		return []int{os.Getpid()}, true, nil
	}
	pids, err = Everyone()
	return pids, false, err
}

// judge uses the tag in the environment of a process or of its nearest ancestor that has one.
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
	// It cannot be asked now. If its nearest ancestor with a tag is ours, the look reaches it
	// from there, too.
	for at, steps := p.Parent, 0; at != os.Getpid() && steps < 1000; steps++ {
		st, err := ReadStat(at)
		switch {
		case err != nil && t.Executing:
			return Unclear, Blind(err)
		case err != nil: // kernel threads also look like dying processes
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
	return Unclear, nil // unless walking, a dying one may be anyone's
}
