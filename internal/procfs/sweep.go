package procfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/mark"
)

// cleanPasses is how often a sweep must find nothing. One look over /proc is no
// snapshot: a process may fork behind the reader's back.
const cleanPasses = 3

// EndDescendants kills with SIGKILL what this process has started, for one that is about
// to end itself, and may have no master to sweep after it. It does not wait for their ends.
func EndDescendants() {
	st, err := SelfStat()
	if err != nil {
		return // it may open no files; there is nothing to be seen then
	}
	s := NewSweeper("", nil)
	own, _ := mark.Of(os.Getpid()) // a process may always ask for its own
	s.mark = own.Worker()
	for range 10 * cleanPasses { // it can start others meanwhile, but not for ever
		before := len(s.signalled)
		if _, err := s.under(ID{os.Getpid(), st.Start}); err == nil && len(s.signalled) == before {
			return
		}
	}
}

// Sweeper ends what one worker process has started, however often it has to look.
type Sweeper struct {
	proc   string
	master func() bool
	// mark is what it has started has, too.
	mark mark.Mark
	// root is the worker process itself; zero if its number is not known, or does not
	// matter.
	root ID

	mu sync.Mutex
	// known are those who were found to belong to it. They still do when they have lost
	// their parent, by whom they were known, or, dying, their environment.
	known, signalled map[ID]bool

	// looks, if not nil, stands for look, in tests.
	looks func() (processes, error)
}

// NewSweeper returns a Sweeper of the worker process proc. master, if not nil, reports
// whether this process is the master of that one.
func NewSweeper(proc string, master func() bool) *Sweeper {
	return &Sweeper{proc: proc, master: master, mark: mark.Worker(proc), known: map[ID]bool{}, signalled: map[ID]bool{}}
}

// Started says that this process has just started the worker process, with that number.
// From here on Sweep neither kills nor waits for it.
func (s *Sweeper) Started(pid int) {
	// If this fails, as where no more files may be opened, it is known by its environment.
	if st, err := ReadStat(pid); err == nil {
		s.root = ID{pid, st.Start}
		spawned.Store(s.root, s.proc)
	}
}

// Reaped says that the worker process was waited for: its number may be another's.
func (s *Sweeper) Reaped() { spawned.Delete(s.root) }

// Sweep kills with SIGKILL every process that belongs to the worker process
// and returns when none is left, or with an error when ctx ends before. The
// worker process itself counts too, unless Started has named it. killed
// counts the processes to which it was sent.
//
// Out of reach is only a process that has taken off its mark (see package mark), emptied
// its environment, and outlives its parent.
func (s *Sweeper) Sweep(ctx context.Context) (killed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.signalled)
	defer func() { killed = len(s.signalled) - before }()
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := time.Millisecond
	for clean := 0; clean < cleanPasses; {
		left, err := s.pass()
		if err != nil && Blind(err) == nil {
			return killed, fmt.Errorf("sweep %s: %w", s.proc, err)
		}
		// A look that failed does not prove that nothing is left.
		if left == 0 && err == nil {
			clean++
			continue
		}
		clean = 0
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return killed, errors.Join(fmt.Errorf("sweep %s: process %d is still there: %w", s.proc, left, ctx.Err()), err)
		case <-pause.C:
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
	return killed, nil
}

// pass looks once and kills what it finds. left is one of those who are still there; 0 =
// none.
func (s *Sweeper) pass() (left int, err error) {
	if s.root != (ID{}) {
		left, err = s.under(s.root)
	}
	found, unseen := s.look()
	for pid, p := range found {
		if s.known[ID{pid, p.start}] {
			p.proc, p.dying = s.proc, false
			found[pid] = p
		}
	}
	for pid, p := range found {
		c := ID{pid, p.start}
		switch {
		case c == s.root:
			continue
		case !found.belongs(pid, s.proc):
			if found.undecided(pid) {
				left = pid
			}
			continue
		}
		left = pid
		if p.dying {
			continue // and perhaps another's
		}
		s.known[c] = true
		s.kill(c)
	}
	return left, errors.Join(err, unseen)
}

func (s *Sweeper) look() (processes, error) {
	if s.looks != nil {
		return s.looks()
	}
	if s.ours() {
		return below(s.proc, s.see)
	}
	return survey(s.see)
}

// see is the see of this sweep: whom it knows it need not ask again, and who has the mark
// need not be asked at all.
func (s *Sweeper) see(pid string) (process, bool, error) {
	number, _ := strconv.Atoi(pid)
	st, err := readStat(pid)
	if Blind(err) != nil {
		return process{}, false, err
	}
	if err != nil {
		hidden, err := s.hidden(number) // else it is gone
		return process{proc: s.proc}, hidden, err
	}
	p := process{parent: st.Parent, start: st.Start}
	if st.Dead() {
		return process{}, false, nil
	}
	if s.known[ID{number, st.Start}] {
		return p, true, nil
	}
	marked, err := s.marked(number)
	if marked {
		p.proc = s.proc
		return p, true, nil
	}
	if err != nil {
		return process{}, false, err
	}
	return see(pid)
}

// marked reports whether the process with that number has the mark. It fails if this process
// could not look.
func (s *Sweeper) marked(pid int) (bool, error) {
	if s.mark == 0 {
		return false, nil
	}
	m, err := mark.Of(pid)
	return m.Worker() == s.mark, Blind(err)
}

// hidden reports whether a process that has the mark lives, hidden from /proc. It fails if
// this process could not look.
func (s *Sweeper) hidden(pid int) (bool, error) {
	if exists, zombie := mark.Hidden(pid); !exists || zombie {
		return false, nil
	}
	return s.marked(pid)
}

// under kills what is below the worker process. It goes by parents alone, because to read
// an environment can take as long as its process is busy with its memory.
func (s *Sweeper) under(at ID) (left int, err error) {
	found, err := s.tree(at, nil)
	// All are known before the first ends, and those below it go elsewhere. Then from the
	// top down: who was sent SIGKILL forks no more.
	for _, c := range found {
		s.known[c] = true
	}
	for _, c := range found {
		s.kill(c)
		left = c.PID
	}
	return left, err
}

// tree appends those who live below the process at to found, parents first.
func (s *Sweeper) tree(at ID, found []ID) ([]ID, error) {
	pids, err := childrenOf(strconv.Itoa(at.PID))
	for _, pid := range pids {
		st, unseen := ReadStat(pid)
		if unseen != nil && Blind(unseen) == nil {
			var hidden bool
			if hidden, unseen = s.hidden(pid); hidden {
				found = append(found, ID{PID: pid})
			}
			err = errors.Join(err, unseen)
			continue
		}
		if unseen != nil || st.Dead() || st.Parent != at.PID {
			err = errors.Join(err, Blind(unseen))
			continue
		}
		// The number of the parent may have become another's.
		if parent, unseen := ReadStat(at.PID); unseen != nil || parent.Start != at.Start {
			return found, errors.Join(err, Blind(unseen))
		}
		c := ID{pid, st.Start}
		found, unseen = s.tree(c, append(found, c))
		err = errors.Join(err, unseen)
	}
	return found, err
}

// kill sends SIGKILL to c, once. Of one that is hidden only the number is known, and the
// mark.
func (s *Sweeper) kill(c ID) {
	if c.Start == 0 {
		if mark.Kill(c.PID, s.mark) == nil {
			s.signalled[c] = true
		}
	} else if !s.signalled[c] && c.Kill() {
		s.signalled[c] = true
	}
}
