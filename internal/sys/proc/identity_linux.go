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
	if err != nil && !errors.Is(err, os.ErrNotExist) { // kernels before 5.6 have no time namespaces
		return "", err
	}
	return bootName(bootID(), pids, times), nil
}

// bootID returns a text unique to this boot of this machine. It is constant in one process.
var bootID = sync.OnceValue(func() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(id) > 0 {
		return string(id)
	}
	// Under systemd's ProcSubset=pid there is no /proc/sys. The boot time distinguishes boots,
	// and the machine id distinguishes machines that booted together. If the clock was set
	// since, the text differs; this machine's dead are then recovered when their lease ends
	// instead of at once.
	machine, _ := os.ReadFile("/etc/machine-id")
	if len(bytes.TrimSpace(machine)) == 0 {
		return rand.Text() // without a name for the machine, only leases decide
	}
	return string(fmt.Appendf(machine, " %d", bootedAt().Round(100*time.Millisecond).UnixMilli()))
})

// bootedAt returns the time of the boot. It takes the best of ten readings, because other
// processes may run between reading the two clocks.
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
