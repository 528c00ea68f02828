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
	// snapshot: a process may fork behind the reader.
	cleanLooks = 3
	// pauseFrom and pauseTo bound the pause between two looks while something is left.
	pauseFrom = time.Millisecond
	pauseTo   = 50 * time.Millisecond
	// complainAfter is when Sweep.Late is called.
	complainAfter = 5 * time.Second
)

// Verdict is what a Sweep does with a process.
type Verdict byte

const (
	Other   Verdict = iota // it stays; its descendants may be ours
	Spared                 // it stays, with its descendants
	Unclear                // it stays for now; the sweep looks again
	Ours                   // it is killed, with its descendants
)

// Seen is a process as a Sweep sees it.
type Seen struct {
	ID
	Stat
	Mark mark.Mark
}

// Sweep kills processes until several looks in a row find none. It judges a process by what it
// reads after the start time, and signals only the process with that start time, never a later
// one with the same pid.
//
// The zero value looks at this process's descendants. Use a Sweep from one goroutine.
type Sweep struct {
	// From returns the processes where a look begins. With walk, a look visits all their
	// descendants; otherwise only descendants of ours.
	From func() (pids []int, walk bool, err error)
	// Root, if not zero, is a process that stays while its descendants are ours.
	Root ID
	// Mark is the mark of our processes. Processes hidden by /proc are recognised by it alone.
	Mark mark.Mark
	// Judge judges the other processes; nil: they stay. Dead processes are judged only for Reap.
	Judge func(Seen) (Verdict, error)
	// Reap reports whether a look may reap a dead child of this process that is ours; nil:
	// never.
	Reap func(pid int) bool
	// Patience is how long to wait for unclear processes; 0 = until they are clear.
	Patience time.Duration
	// Late, if not nil, is called once when something is left after complainAfter: pid is one
	// such process, 0 if no look succeeded; err is the last look's error.
	Late func(pid int, err error)

	// known are processes that are ours, even after losing the parent or the environment that
	// showed it. true: they were sent SIGKILL.
	known  map[ID]bool
	killed int
	// children replaces Children in tests.
	children func(pid int) ([]int, error)
}

// Run kills what is ours. It returns when nothing is left, or with an error when ctx ends.
// killed counts the processes that were sent SIGKILL.
func (s *Sweep) Run(ctx context.Context) (killed int, err error) {
	before, began, complained := s.killed, time.Now(), false
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := pauseFrom
	for clean := 0; clean < cleanLooks; {
		left, unclear, err := s.look(s.kill)
		took := time.Since(began)
		// A failed look does not prove that nothing is left.
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

// look looks once and ends what is ours. left and unclear are one such process each; 0 = none.
func (s *Sweep) look(end func(ID)) (left, unclear int, err error) {
	todo, walk := []int{os.Getpid()}, true
	if s.From != nil {
		todo, walk, err = s.From()
	}
	// Parents, which mostly have lower pids, first: they could start others in place of the
	// dead.
	slices.Reverse(todo)
	if s.Root != (ID{}) {
		// First: reading an environment can take as long as its process is busy with its memory.
		todo = append(todo, s.Root.PID)
	}
	var listed map[int]bool // nil unless walking
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

// see looks at one process; of a hidden one it returns only the pid. listed, if not nil, are the
// processes visited so far.
func (s *Sweep) see(pid int, listed map[int]bool) (p Seen, v Verdict, err error) {
	p.PID = pid
	if pid == os.Getpid() {
		return p, Other, nil
	}
	if s.Judge == nil && len(s.known) == 0 && pid != s.Root.PID {
		// Most processes of a machine need no read: this asks the kernel once.
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
	// If its parent is not a listed one by now, it is another process.
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

// claim notes that the children of a process are ours. Call it before the process is killed:
// then they get another parent.
func (s *Sweep) claim(parent ID, children []int) (err error) {
	var found []ID
	for _, pid := range children {
		st, unseen := ReadStat(pid)
		if unseen == nil && st.Parent == parent.PID {
			found = append(found, ID{pid, st.Start})
		}
		err = errors.Join(err, Blind(unseen))
	}
	// The parent's pid may have become another process's.
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

// kill sends SIGKILL to a process, once. A hidden one is known only by pid and mark.
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
