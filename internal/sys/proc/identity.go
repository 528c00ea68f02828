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

// Identity names one process for ever, on all machines: a reboot or a reused pid gives another
// Identity.
type Identity struct {
	// Host is the hostname, with '/', ':', '#' and blanks replaced by '-'.
	Host string
	// Boot names this boot of the machine and the namespaces that count pids and start times,
	// which mean something only there.
	Boot string
	PID  int
	// Start is the process's start time, in clock ticks since the boot.
	Start uint64
}

// Self returns the identity of this process. On Linux it fails if /proc shows another PID
// namespace: pids there would name other processes.
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

// bootName returns a short name for a boot and the namespaces that count this process's pids and
// times. Containers always share their host's boot and may share its name (host networking), but
// a pid or a start time means nothing in another namespace.
func bootName(boot, pids, times string) string {
	// The leading number is the version of what an identity promises. Daemons with another one
	// have other names, and leave each other to their leases.
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

// Place returns host:boot, the prefix of all ids of this machine or container since its boot.
// Processes with the same place count pids and times alike, but need not see each other in
// /proc.
func (i Identity) Place() string { return i.Host + ":" + i.Boot }

// Child returns the process id (as Redis knows it) of this master's seq-th worker process, in
// slot.
func (i Identity) Child(slot, seq int) string {
	return fmt.Sprintf("%s:%d.%d", i, slot, seq)
}

var identityText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:]+):([^:]+):(\d+)-(\d+)(:\d+\.\d+)?$`) })

// Dead reports whether the process is proven to be dead. Ask only at the process's own Place:
// elsewhere its pid means nothing. False means that it lives or that this is unknown.
func (i Identity) Dead() bool { return procfs.ID{PID: i.PID, Start: i.Start}.Dead() }

// ParseIdentity reads the id of a master or of one of its worker processes: both name the
// master.
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
