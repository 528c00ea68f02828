package runner

import (
	"errors"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procfs"
)

const (
	// cleanPasses is how often in a row a look must find nothing: a process may fork behind
	// the reader's back.
	cleanPasses = 3
	// pollFrom and pollTo are the pauses between two looks, while something is there.
	pollFrom = time.Millisecond
	pollTo   = 50 * time.Millisecond
	// few is how many processes of the machine are looked at one by one, rather than by a walk
	// over those below the master: that reads a file for each of their threads, which takes four
	// times as long as asking 90 processes for their marks.
	few = 512
	// complainAfter is when it is said that killed processes do not die.
	complainAfter = 5 * time.Second
)

// sweep kills what the process has started and returns when nothing is left.
func (q *process) sweep() {
	s := &sweep{q: q, killed: map[procfs.ID]bool{}, master: os.Getppid()}
	began, pause, complained := time.Now(), pollFrom, false
	for clean := 0; clean < cleanPasses; {
		left := s.pass()
		if left == 0 {
			clean++
			continue
		}
		clean = 0
		if time.Since(began) > complainAfter && !complained {
			complained = true
			q.log.Warn("processes of a runner were killed but do not die, or belong to another user; what it did stays open until they end",
				zap.Int64("runner_pid", q.pid.Load()), zap.Int("pid", left))
		}
		<-time.After(pause)
		pause = min(2*pause, pollTo)
	}
}

// sweep looks for what one process has started.
type sweep struct {
	q      *process
	master int
	killed map[procfs.ID]bool
}

// pass looks once and kills what it finds. left is one of those who are still there; 0 = none.
//
// What this process has started is below it, because orphans come to it. What the template has
// forked is below the master, to which orphans come there.
func (s *sweep) pass() (left int) {
	var unseen error
	children, walk := procfs.ChildLister(), true
	todo := []int{os.Getpid()}
	if s.q.forked {
		everyone, err := procfs.Everyone()
		switch {
		case err == nil && len(everyone) <= few:
			todo, walk = everyone, false
		case s.master > 1 && os.Getppid() == s.master:
			todo[0] = s.master // it is above this one
		default: // the master is gone, and where its orphans are nobody knows
			todo, walk, unseen = everyone, false, err
		}
	}
	own := map[int]bool{}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ours, err := s.belongs(pid)
		unseen = errors.Join(unseen, err)
		ours = ours || own[pid]
		if !walk && !ours {
			continue
		}
		below, err := children(pid)
		unseen = errors.Join(unseen, err)
		if ours {
			for _, child := range below {
				own[child] = true
			}
			if s.kill(pid) {
				left = pid
			}
		}
		todo = append(todo, below...)
	}
	if left == 0 && procfs.Blind(unseen) != nil {
		return -1 // whoever it is
	}
	return left
}

// belongs reports whether a process was started by the runner's, or is that itself.
func (s *sweep) belongs(pid int) (bool, error) {
	q := s.q
	if pid == os.Getpid() || pid == s.master {
		return false, nil
	}
	if pid == int(q.pid.Load()) && !q.forked {
		return true, nil // it is not reaped yet
	}
	m, err := mark.Of(pid)
	if err := procfs.Blind(err); err != nil {
		return false, err
	}
	if m == q.mark || m.IsRun() || q.forked {
		return m == q.mark, nil
	}
	st, err := procfs.ReadStat(pid)
	if err != nil {
		return false, procfs.Blind(err)
	}
	env, err := procfs.Environ(pid)
	return st.Group == int(q.pid.Load()) || st.HasVariable(env, tagEnv+"="+q.tag), procfs.Blind(err)
}

// kill kills a process and reports whether it is still there. Those that have died and are this
// process's to reap it reaps.
func (s *sweep) kill(pid int) bool {
	st, err := procfs.ReadStat(pid)
	if err != nil { // it is gone, or hidden
		exists, zombie := mark.Hidden(pid)
		if !exists || zombie {
			return procfs.Blind(err) != nil
		}
		if m, _ := mark.Of(pid); m != s.q.mark {
			return false
		}
		_ = mark.Kill(pid, s.q.mark)
		return true
	}
	id := procfs.ID{PID: pid, Start: st.Start}
	if st.Dead() {
		if s.killed[id] && st.Parent == os.Getpid() && !s.q.pool.Owns(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		return false
	}
	if id.Kill() {
		s.killed[id] = true
	}
	return true
}
