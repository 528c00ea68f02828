package handler

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
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

// sweep kills what is left of the command, inside and outside of its group, and returns when
// nothing is. It looks below this process, to which every orphan comes (see program.SetUp).
func (p *process) sweep() {
	began, _ := procfs.ReadStat(p.leader.PID) // zero where it is hidden
	s := procfs.Sweep{
		Mark: p.mark, Patience: unclearFor,
		Judge: func(s procfs.Seen) (procfs.Verdict, error) { return p.judge(s, began.Start) },
		Reap:  func(pid int) bool { return pid != p.leader.PID },
		Late: func(pid int, err error) {
			p.log.Warn("processes of a finished command were killed but do not die, or belong to another user; the job stays open until they end",
				zap.Int("pid", pid), zap.Error(err))
		},
	}
	_, _ = s.Run(context.Background()) // it fails only when that ends
}

// judge judges a process that does not have the mark of p. It is ours if it is in the group of p, or has
// its tag in the environment. It is unclear if it has the mark of no run here and no environment right
// now: it is dying, and its children are about to become visible here, or it is just executing another
// program. A process that began before the command is neither. A process is out of reach only
// if it has left the group, taken off its mark, emptied its environment and outlived its parent.
func (p *process) judge(s procfs.Seen, began uint64) (procfs.Verdict, error) {
	leader := p.leader.PID
	switch {
	case s.PID != leader && p.runner.owns(s.PID):
		return procfs.Spared, nil // another job's
	case s.Group == leader:
		return procfs.Ours, nil
	case s.ID.Start < began || s.Mark.IsRun() && s.Mark.Worker() == p.mark.Worker():
		return procfs.Other, nil // or another run's
	}
	env, err := procfs.ReadEnvironment(s.PID, s.Stat)
	switch {
	case env.Has("RESQUED_JOB=" + p.tag):
		return procfs.Ours, err
	case (env.Dying || env.Executing) && s.Group != unix.Getpgrp():
		return procfs.Unclear, err
	}
	return procfs.Other, err
}
