package procfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
)

const (
	// cleanLooks is how many looks in a row must find nothing. One look over /proc is not a
	// snapshot: a process may fork behind the reader's back.
	cleanLooks = 3
	// pauseFrom and pauseTo are the pauses between two looks, while something is there.
	pauseFrom = time.Millisecond
	pauseTo   = 50 * time.Millisecond
	// complainAfter is when Sweep.Late is called.
	complainAfter = 5 * time.Second
)

// Verdict says what a Sweep does with a process.
type Verdict byte

// The verdicts.
const (
	Other   Verdict = iota // it stays; processes below it may be ours
	Spared                 // it stays, with all below it
	Unclear                // it stays for now, and the sweep looks again
	Ours                   // it is killed, with all below it
)

// Seen is a process as a Sweep sees it.
type Seen struct {
	ID
	Stat
	Mark mark.Mark
}

// Sweep kills processes until several looks in a row find none. It goes by what it finds of a
// process after it has read the start time, and signals the process with that start time alone:
// a later one with the same number is never hit.
//
// The zero value looks at what descends from this process. Use a Sweep from one goroutine.
type Sweep struct {
	// From returns the processes with which a look begins. walk: a look goes on to all that
	// descends from them; else only to what descends from ours.
	From func() (pids []int, walk bool, err error)
	// Root, if not zero, is a process that stays, while all below it is ours.
	Root ID
	// Mark is the mark of processes that are ours. Those that /proc hides are known by it alone.
	Mark mark.Mark
	// Judge judges the others; nil: they stay. Dead processes are judged for Reap alone.
	Judge func(Seen) (Verdict, error)
	// Reap reports whether a look may reap a dead child of this process that is ours; nil: none.
	Reap func(pid int) bool
	// Patience is how long unclear processes are waited for; 0 = until they are clear.
	Patience time.Duration
	// Late, if not nil, is called once when something has been left for complainAfter. pid is
	// one process of it, 0 if no look could tell; err says why one could not.
	Late func(pid int, err error)

	// known are processes that are ours, also when they have lost the parent, or the
	// environment, by which they were known. true: they were sent SIGKILL.
	known  map[ID]bool
	killed int
	// children stands for Children, in tests.
	children func(pid int) ([]int, error)
}

// Run kills what is ours and returns when nothing of it is left, or with an error when ctx ends
// before. killed counts the processes to which SIGKILL was sent.
func (s *Sweep) Run(ctx context.Context) (killed int, err error) {
	before, began, complained := s.killed, time.Now(), false
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := pauseFrom
	for clean := 0; clean < cleanLooks; {
		left, unclear, err := s.look(s.kill)
		took := time.Since(began)
		// A look that failed does not prove that nothing is left.
		if left == 0 && err == nil && (unclear == 0 || s.Patience > 0 && took > s.Patience) {
			clean++
			continue
		}
		clean, left = 0, max(left, unclear)
		if took > complainAfter && !complained && s.Late != nil {
			complained = true
			s.Late(left, err)
		}
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return s.killed - before, errors.Join(fmt.Errorf("process %d is still there: %w", left, ctx.Err()), err)
		case <-pause.C:
			wait = min(2*wait, pauseTo)
		}
	}
	return s.killed - before, nil
}

// look looks once and ends what is ours. left and unclear are one such process each that is still
// there; 0 = none.
func (s *Sweep) look(end func(ID)) (left, unclear int, err error) {
	todo, walk := []int{os.Getpid()}, true
	if s.From != nil {
		todo, walk, err = s.From()
	}
	// Parents first, which have lower numbers mostly: they could start others in place of the dead.
	slices.Reverse(todo)
	if s.Root != (ID{}) {
		// First: to read an environment can take as long as its process is busy with its memory.
		todo = append(todo, s.Root.PID)
	}
	var listed map[int]bool // on a walk
	if walk {
		listed = map[int]bool{}
		for _, pid := range todo {
			listed[pid] = true
		}
	}
	children := s.children
	if children == nil {
		children = childLister()
	}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		p, verdict, unseen := s.see(pid, listed)
		err = errors.Join(err, unseen)
		if verdict == Unclear {
			unclear = pid
		}
		inherits := verdict == Ours || p.ID == s.Root
		if verdict == Spared || !walk && !inherits {
			continue
		}
		if walk {
			listed[pid] = true
		}
		below, unseen := children(pid)
		err = errors.Join(err, unseen)
		if inherits {
			err = errors.Join(err, s.claim(p.ID, below))
		}
		if verdict == Ours {
			left = pid
			end(p.ID)
		}
		todo = append(todo, below...)
	}
	return left, unclear, err
}

// see looks at one process. Of a hidden one only the number is known. listed, if not nil, are those
// from which it descends.
func (s *Sweep) see(pid int, listed map[int]bool) (p Seen, v Verdict, err error) {
	p.PID = pid
	if pid == os.Getpid() {
		return p, Other, nil
	}
	if s.Judge == nil && len(s.known) == 0 && pid != s.Root.PID {
		// Most processes of a machine need not be read: this asks the kernel once.
		if m, err := mark.Of(pid); !s.Mark.Covers(m) {
			return p, Other, Blind(err)
		}
	}
	st, err := ReadStat(pid)
	switch {
	case Blind(err) != nil:
		return p, Other, err
	case err != nil:
		v, err = s.hidden(pid)
		return p, v, err
	}
	p.Stat, p.ID.Start = st, st.Start
	// It may have another parent by now, but one that is listed, else it is another process.
	if listed != nil && !listed[pid] && !listed[p.Parent] {
		return p, Spared, nil
	}
	reap := p.Parent == os.Getpid() && s.Reap != nil && s.Reap(pid)
	if p.ID == s.Root || st.Dead() && !reap {
		return p, Other, nil
	}
	v, err = s.judge(p)
	if st.Dead() {
		if v == Ours {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		v = Other
	}
	return p, v, err
}

func (s *Sweep) judge(p Seen) (v Verdict, err error) {
	if _, ok := s.known[p.ID]; ok {
		return Ours, nil
	}
	p.Mark, err = mark.Of(p.PID)
	switch {
	case s.Mark.Covers(p.Mark):
		return Ours, nil
	case Blind(err) != nil:
		return Other, err
	case s.Judge == nil:
		return Other, nil
	}
	return s.Judge(p)
}

// hidden judges, and reaps, a process that /proc does not show.
func (s *Sweep) hidden(pid int) (Verdict, error) {
	exists, zombie := mark.Hidden(pid)
	if !exists {
		return Other, nil
	}
	if m, err := mark.Of(pid); !s.Mark.Covers(m) {
		return Other, Blind(err)
	}
	if !zombie {
		return Ours, nil
	}
	if s.Reap != nil && s.Reap(pid) {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return Other, nil
}

// claim notes that the children of a process are ours. It comes before the process is killed:
// then they go elsewhere.
func (s *Sweep) claim(parent ID, children []int) (err error) {
	var found []ID
	for _, pid := range children {
		st, unseen := ReadStat(pid)
		if unseen == nil && st.Parent == parent.PID {
			found = append(found, ID{pid, st.Start})
		}
		err = errors.Join(err, Blind(unseen))
	}
	// The number of the parent may have become another's.
	st, unseen := ReadStat(parent.PID)
	if unseen != nil || st.Start != parent.Start {
		return errors.Join(err, Blind(unseen))
	}
	for _, id := range found {
		s.know(id, s.known[id])
	}
	return err
}

func (s *Sweep) know(id ID, signalled bool) {
	if s.known == nil {
		s.known = map[ID]bool{}
	}
	s.known[id] = signalled
}

// kill sends SIGKILL to a process, once. Of one that is hidden only the number is known, and the
// mark.
func (s *Sweep) kill(id ID) {
	if s.known[id] && id.Start != 0 {
		return
	}
	if id.Start == 0 && mark.Kill(id.PID, s.Mark) == nil || id.Start != 0 && id.Kill() {
		if !s.known[id] {
			s.killed++
		}
		s.know(id, true)
	}
}
