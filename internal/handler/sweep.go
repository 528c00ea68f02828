package handler

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procfs"
)

// alone reports whether the command, whose leader has ended, has left no process. Each one that
// it has left has an ancestor, or is one, that has come to this process as an orphan and is a child of
// its first thread, or was made a child of the thread that starts commands (CLONE_PARENT). So where
// there is no child of the one but those that were started, and at a later instant none of the other,
// there is none at all. It does not prove that there are some.
func (p *process) alone() bool {
	if !procfs.ListsChildren() {
		return false
	}
	var strangers int
	var unseen error
	p.runner.launcher.Still(func(thread int, started func(pid int) bool) {
		for _, t := range []int{thread, os.Getpid()} {
			children, err := procfs.ThreadChildren(t)
			unseen = errors.Join(unseen, err)
			for _, pid := range children {
				if !started(pid) {
					strangers++
				}
			}
		}
	})
	return strangers == 0 && unseen == nil
}

// look goes over the descendants of this process, to which every orphan among
// them comes (see setUp), and returns how many living ones belong to p. With
// kill it kills them and reaps those that have died; without, only the group is
// looked at.
//
// What belongs to p is in its group, has its mark, or has its tag in the environment.
// unclear are those with the mark of no run here and no environment right now: a process that
// is dying, with children that are about to become visible here, or one that is just being
// replaced by another program. What was there before the command is neither. Out of reach
// is only a process that has left the group, taken off its mark, emptied its environment
// and outlived its parent.
func (p *process) look(kill bool) (left, unclear int) {
	own, leader, self := unix.Getpgrp(), p.leader.PID, os.Getpid()
	// unseen is why something could not be looked at: who may open no files sees no
	// processes, and must not conclude that there are none.
	began, unseen := procfs.ReadStat(leader) // zero where it is hidden
	unseen = procfs.Blind(unseen)
	children := procfs.ChildLister()
	below := func(pid int) []int {
		pids, err := children(pid)
		unseen = errors.Join(unseen, err)
		return pids
	}
	todo := below(self)
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if pid != leader && p.runner.owns(pid) {
			continue // another job's, with all that is below it
		}
		todo = append(todo, below(pid)...)
		st, err := procfs.ReadStat(pid)
		if err != nil {
			hidden, unmarked := p.hidden(pid, kill)
			unseen = errors.Join(unseen, procfs.Blind(err), unmarked)
			if hidden {
				left++
				p.lasting = pid
			}
			continue
		}
		if pid == leader && st.Dead() {
			continue
		}
		ours := st.Group == leader
		switch {
		case st.Dead():
			if kill && st.Parent == self && (ours || p.killed[pid] == st.Start) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
			continue
		case !ours && kill && st.Start >= began.Start:
			m, err := mark.Of(pid)
			unseen = errors.Join(unseen, procfs.Blind(err))
			if ours = p.mark != 0 && m == p.mark; ours || m.IsRun() && m.Worker() == p.mark.Worker() {
				break // or of another run
			}
			env, err := procfs.Environ(pid)
			ours = st.HasVariable(env, "RESQUED_JOB="+p.tag)
			if err == nil && len(env) == 0 && st.Group != own {
				var bare bool
				if bare, err = procfs.Bare(pid); !bare {
					unclear++
				}
			}
			unseen = errors.Join(unseen, err)
		}
		if ours {
			left++
			p.lasting = pid
			if kill && (procfs.ID{PID: pid, Start: st.Start}).Kill() {
				if p.killed == nil {
					p.killed = map[int]uint64{}
				}
				p.killed[pid] = st.Start
			}
		}
	}
	if left == 0 && unseen != nil {
		left++ // whoever it is
	}
	return left, unclear
}
