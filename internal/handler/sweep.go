package handler

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// alone reports whether the command, whose leader has ended, has left no process; false proves
// nothing. Each remaining process has, or is, an ancestor that this process has adopted as a
// child of its main thread, or that CLONE_PARENT has made a child of the thread that starts
// commands. So if neither thread has a child other than the started ones, read one after the
// other, nothing is left.
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

// sweep kills the remaining processes of the command, in and outside its group, and returns when
// none is left. It looks below this process, which adopts every orphan (see program.SetUp).
func (p *process) sweep() {
	began, _ := procfs.ReadStat(p.leader.PID) // zero if it is hidden
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

// judge judges a process without the mark of p. It is ours if it is in the group of p, or has
// its tag in the environment. It is unclear if it has neither a run's mark of this process nor
// an environment now: it is dying, and its children are about to appear here, or it is executing
// another program. A process older than the command is neither. Out of reach is only a process
// that has left the group, removed its mark, emptied its environment and outlived its parent.
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
