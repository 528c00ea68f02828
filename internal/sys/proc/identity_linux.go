package proc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// place names this boot and the namespaces in which this process is counted.
func place() (string, error) {
	shown, err := os.Readlink("/proc/self")
	if err != nil {
		return "", fmt.Errorf("%w: resqued needs the /proc of its own PID namespace", err)
	}
	if shown != strconv.Itoa(os.Getpid()) {
		return "", fmt.Errorf("/proc is that of another PID namespace: it shows process %d as %s; "+
			"mount the namespace's own one there (unshare --mount-proc)", os.Getpid(), shown)
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // kernels before 5.6 have none
		return "", err
	}
	return bootName(bootID(), pids, times), nil
}

// bootID returns a text that no other boot of this or another machine has. It is always
// the same in one process.
var bootID = sync.OnceValue(func() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(id) > 0 {
		return string(id)
	}
	// Under systemd's ProcSubset=pid there is no /proc/sys. The instant of the
	// boot tells boots apart, and the machine id machines that booted together.
	// A clock that was set since gives another text: then this machine's dead
	// are recovered when their lease ends instead of at once.
	machine, _ := os.ReadFile("/etc/machine-id")
	if len(bytes.TrimSpace(machine)) == 0 {
		return rand.Text() // nothing tells this machine from others: only leases decide
	}
	return string(fmt.Appendf(machine, " %d", bootedAt().Round(100*time.Millisecond).UnixMilli()))
})

// bootedAt returns the instant of the boot, as exactly as two clocks can be read that
// other processes may come between.
func bootedAt() (at time.Time) {
	least := time.Hour
	for range 10 {
		before := procfs.BootTime()
		now := time.Now()
		if took := procfs.BootTime() - before; took < least {
			at, least = now.Add(-before), took
		}
	}
	return at
}
