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

	"github.com/resqued/resqued/internal/sys/procfs"
)

// Identity names one process for ever: no other one will have it, on this
// machine or elsewhere, not after a reboot and not when its pid is used again.
type Identity struct {
	// Host is the hostname, with '/', ':', '#' and blanks made '-'.
	Host string
	// Boot tells this boot of the machine, and the namespaces in it by which pids and
	// start times are counted, from all others: they mean something only there.
	Boot string
	PID  int
	// Start is when the process started, in clock ticks since the boot.
	Start uint64
}

// Self returns the identity of this process. On Linux it fails where /proc does not show the
// PID namespace of this process: each number in it would be that of another process.
func Self() (Identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	boot, err := place()
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	self, err := procfs.SelfStat()
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	return Identity{
		Host: sanitise(host), Boot: boot,
		PID: os.Getpid(), Start: self.Start,
	}, nil
}

// bootName makes a short name of a boot and of the namespaces in it by which this process
// counts pids and times. Containers may share their host's name (host networking) and
// always share its boot, but a pid of one means nothing in another, and a start time
// nothing in another time namespace.
func bootName(boot, pids, times string) string {
	// The number stands for what an identity promises. Daemons that promise something
	// else have other names, and leave each other to their leases.
	sum := sha256.Sum256([]byte("2 " + boot + " " + pids + " " + times))
	return hex.EncodeToString(sum[:4])
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

// Place returns host:boot, the prefix of all ids of this machine, or container, since its
// boot. Two processes with one place count pids and times alike. Whether one of them sees
// the other in /proc is another question.
func (i Identity) Place() string { return i.Host + ":" + i.Boot }

// Child returns the process id (as Redis knows it) of the seq-th worker process
// of this master, in slot.
func (i Identity) Child(slot, seq int) string {
	return fmt.Sprintf("%s:%d.%d", i, slot, seq)
}

var identityText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:]+):([^:]+):(\d+)-(\d+)(:\d+\.\d+)?$`) })

// Dead reports whether the process is proven to be dead. It may only be asked at the
// process's own Place: elsewhere its pid means nothing. False means that it lives, or that
// this cannot be found out.
func (i Identity) Dead() bool { return procfs.ID{PID: i.PID, Start: i.Start}.Dead() }

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
