package master

import (
	"fmt"
	"syscall"

	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// oomWatch has the counts of out-of-memory kills one and two rounds ago, so that at least one
// whole round precedes a death.
type oomWatch struct{ older, newer procfs.OOM }

func (o *oomWatch) note(now procfs.OOM) {
	o.older, o.newer = o.newer, now
	if o.older.Where == "" {
		o.older = now
	}
}

// suspectOOM notes if w may have been killed for lack of memory. The kernel only counts such
// kills; it does not name the process, and any other SIGKILL looks the same.
func (m *Master) suspectOOM(w *worker, exit proc.Exit) {
	if exit.Signal != syscall.SIGKILL || w.kill.cause != "" {
		return
	}
	before, now := m.oom.older, m.d.System.OOMKills()
	if before.Where == "" || now.Where != before.Where || now.Kills <= before.Kills {
		return
	}
	w.kill.cause = fmt.Sprintf("perhaps out of memory: the kernel's OOM killer has just killed %s of %s", processes(now.Kills-before.Kills), now.Where)
}

func processes(n int64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
