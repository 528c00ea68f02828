package master

import (
	"fmt"
	"syscall"

	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// oomWatch remembers what the kernel had killed for want of memory one round ago and
// two, so that at least one whole round lies behind a death that is looked into.
type oomWatch struct{ older, newer procfs.OOM }

func (o *oomWatch) note(now procfs.OOM) {
	o.older, o.newer = o.newer, now
	if o.older.Where == "" {
		o.older = now
	}
}

// suspectOOM notes if w may have been killed for want of memory. The kernel only
// counts such kills and does not say whom they hit; any other SIGKILL looks the
// same.
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
