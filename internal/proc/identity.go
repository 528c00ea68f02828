package proc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// initialPIDNamespace is the link text of the pid namespace that a machine boots
// with; its number is part of the kernel's interface.
const initialPIDNamespace = "pid:[4026531836]"

// Identity names one process for ever: no other one will have it, on this
// machine or elsewhere, not after a reboot and not when its pid is used again.
type Identity struct {
	// Host is the hostname, with '/', ':', '#' and blanks made '-'.
	Host string
	// Boot tells this boot of the machine, and the pid namespace in it, from
	// all others: a pid means something only there.
	Boot string
	PID  int
	// Start is when the process started, in clock ticks since the boot.
	Start uint64
}

// Self returns the identity of this process.
func Self() (Identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	self, err := readStat("self")
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	return Identity{
		Host: sanitise(host), Boot: bootName(bootID(), namespace),
		PID: os.Getpid(), Start: self.start,
	}, nil
}

// bootID returns a text that no other boot of this or another machine has.
func bootID() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return string(id)
	}
	// Under systemd's ProcSubset=pid there is no /proc/sys. The instant of the
	// boot tells boots apart, and the machine id machines that booted together.
	// A clock that was set since gives another text: then this machine's dead
	// are recovered when their lease ends instead of at once.
	machine, _ := os.ReadFile("/etc/machine-id")
	at := time.Now().Add(-BootTime()).Round(100 * time.Millisecond).UnixMilli()
	sum := sha256.Sum256(fmt.Appendf(machine, " %d", at))
	return hex.EncodeToString(sum[:])
}

// bootName shortens a boot id. Containers may share their host's name (host
// networking) and always share its boot, but a pid of one means nothing in
// another: there the namespace is mixed in.
func bootName(boot, namespace string) string {
	if namespace != initialPIDNamespace {
		sum := sha256.Sum256([]byte(boot + namespace))
		boot = hex.EncodeToString(sum[:])
	}
	return boot[:min(8, len(boot))]
}

func sanitise(host string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune("/:#", r) {
			return '-'
		}
		return r
	}, host)
}

// String returns the id of a master: host:boot:pid-start.
func (i Identity) String() string {
	return fmt.Sprintf("%s:%d-%d", i.Place(), i.PID, i.Start)
}

// Place returns host:boot, the prefix of all ids of this machine since its boot.
func (i Identity) Place() string { return i.Host + ":" + i.Boot }

// Child returns the process id (as Redis knows it) of the seq-th worker process
// of this master, in slot.
func (i Identity) Child(slot, seq int) string {
	return fmt.Sprintf("%s:%d.%d", i, slot, seq)
}

var identityText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:]+):([^:]+):(\d+)-(\d+)(:\d+\.\d+)?$`) })

// ParseIdentity reads the id of a master, or that of one of its worker
// processes: both name the master.
func ParseIdentity(text string) (Identity, error) {
	m := identityText().FindStringSubmatch(text)
	if m == nil {
		return Identity{}, fmt.Errorf("identity %.200q: not host:boot:pid-start", text)
	}
	pid, err := strconv.Atoi(m[3])
	if err != nil {
		return Identity{}, fmt.Errorf("identity %.200q: %w", text, err)
	}
	start, err := strconv.ParseUint(m[4], 10, 64)
	if err != nil {
		return Identity{}, fmt.Errorf("identity %.200q: %w", text, err)
	}
	return Identity{Host: m[1], Boot: m[2], PID: pid, Start: start}, nil
}

// Alive tells whether the process still lives. It may only be asked at the
// process's own Place: elsewhere its pid means nothing.
func (i Identity) Alive() bool {
	s, err := readStat(strconv.Itoa(i.PID))
	return err == nil && s.start == i.Start && !s.zombie()
}

// BootTime returns the time since the machine's boot on a clock that, unlike
// Go's monotonic one, goes on while the machine is suspended.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the kernel has had this clock since 2.6.39
	}
	return time.Duration(ts.Nano())
}
