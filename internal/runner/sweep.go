package runner

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// few is up to how many processes of the machine are checked one by one, instead of walking the
// tree below the master. The walk reads a file per thread, four times as slow as asking 90
// processes for their marks.
const few = 512

func (q *process) sweep() {
	s := procfs.Sweep{
		Mark: q.mark, Judge: q.judge,
		Reap: func(pid int) bool { return !q.pool.Owns(pid) },
		Late: func(pid int, err error) {
			q.log.Warn("processes of a runner were killed but do not die, or belong to another user; what it did stays open until they end",
				zap.Int64("runner_pid", q.pid.Load()), zap.Int("pid", pid), zap.Error(err))
		},
	}
	if q.forked {
		s.Judge, s.From = nil, forkedBelow(os.Getppid())
	}
	_, _ = s.Run(context.Background()) // it fails only when that ends
}

// forkedBelow returns where to look for forks of a template: below the master, which adopts
// their orphans.
func forkedBelow(master int) func() (pids []int, walk bool, err error) {
	return func() (pids []int, walk bool, err error) {
		pids, err = procfs.Everyone()
		if (err != nil || len(pids) > few) && master > 1 && os.Getppid() == master {
			return []int{master}, true, nil // the master is above this process
		}
		return pids, false, err // without the master, its orphans may be anywhere
	}
}

// judge judges a process without the mark of q. It is ours if it is the runner itself, in its
// group, or has its tag.
func (q *process) judge(s procfs.Seen) (procfs.Verdict, error) {
	pid := int(q.pid.Load())
	switch {
	case s.PID == pid || s.Group == pid:
		return procfs.Ours, nil // the pid is not reaped yet
	case s.Mark.IsRun():
		return procfs.Other, nil
	}
	env, err := procfs.ReadEnvironment(s.PID, s.Stat)
	if env.Has(tagEnv + "=" + q.tag) {
		return procfs.Ours, err
	}
	return procfs.Other, err
}
