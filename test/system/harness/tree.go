package harness

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// onHost returns a command that runs under another host name. Its pid is the program's.
func onHost(tb testing.TB, host, binary string, args []string) *exec.Cmd {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("another host name needs root")
	}
	script := `hostname "$0" && exec "$@"`
	return exec.Command("unshare", append([]string{"--uts", "sh", "-c", script, host, binary}, args...)...)
}

// Stop stops every process of the daemon, as suspending the machine does. The master is first,
// so that it does not react to the others.
func (d *Daemon) Stop() {
	d.tb.Helper()
	d.Signal(syscall.SIGSTOP)
	d.signalWorkers(syscall.SIGSTOP)
}

// Continue resumes all processes after Stop.
func (d *Daemon) Continue() {
	d.tb.Helper()
	d.signalWorkers(syscall.SIGCONT)
	d.Signal(syscall.SIGCONT)
}

// KillTree kills every process of the daemon, the master first, as the loss of the machine
// does.
func (d *Daemon) KillTree() {
	d.tb.Helper()
	d.Signal(syscall.SIGKILL)
	d.signalWorkers(syscall.SIGKILL)
	if !proctest.Within(patience, func() bool { return d.Ended() && len(d.Processes()) == 0 }) {
		d.tb.Fatalf("processes are left after their kill: %v", d.Processes())
	}
}

// signalWorkers signals worker processes, including those whose master is gone.
func (d *Daemon) signalWorkers(sig syscall.Signal) {
	for _, p := range d.Processes() {
		if p.PID != d.PID {
			_ = syscall.Kill(p.PID, sig)
		}
	}
}

// Elsewhere returns a verb of the stock binary that runs as on another machine: with another
// host name, without seeing the daemon's processes, and with only the address of its Redis.
func Elsewhere(ctx context.Context, tb testing.TB, d *Daemon, args ...string) *exec.Cmd {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("another host name needs root")
	}
	script := `hostname elsewhere && exec "$0" "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--uts", "--pid", "--fork", "sh", "-c", script, Binary(tb)}, args...)...)
	cmd.Dir = tb.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RESQUE_NAMESPACE=" + d.Space}
	for _, pair := range d.cmd.Env {
		if strings.HasPrefix(pair, "REDIS_URL=") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	return cmd
}
