package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Traces are what a worker process says of itself, so that others of its Place can find
// out whether anything of it is left.
type Traces struct {
	PID   int
	Start uint64
	// View stands for the rights that decide whom a process sees in /proc, and may end.
	// Who has an equal one can do that with this process and what it starts. Empty: none
	// can be told.
	View string
	// Cgroup is the control group in which it, and what it starts, lives, behind the
	// namespace of its name. Empty: none of its own.
	Cgroup string
}

// Fields of a worker process's entry in Redis.
const (
	pidField    = "pid"
	startField  = "start"
	viewField   = "view"
	cgroupField = "cgroup"
)

// TraceFields are the names of the fields of Traces.Fields.
func TraceFields() []string { return []string{pidField, startField, viewField, cgroupField} }

// TracesOfSelf returns the traces of this process.
func TracesOfSelf() (Traces, error) {
	self, err := SelfStat()
	if err != nil {
		return Traces{}, fmt.Errorf("traces: %w", err)
	}
	return Traces{PID: os.Getpid(), Start: self.Start, View: view(), Cgroup: cgroup()}, nil
}

// Fields returns what ParseTraces reads.
func (t Traces) Fields() map[string]string {
	return map[string]string{
		pidField: strconv.Itoa(t.PID), startField: strconv.FormatUint(t.Start, 10), viewField: t.View, cgroupField: t.Cgroup,
	}
}

// ParseTraces reads the fields of an entry in Redis. It fails if they do not say which
// process it was.
func ParseTraces(fields map[string]string) (Traces, error) {
	pid, err1 := strconv.Atoi(fields[pidField])
	start, err2 := strconv.ParseUint(fields[startField], 10, 64)
	if err := errors.Join(err1, err2); err != nil || pid <= 0 {
		return Traces{}, fmt.Errorf("traces: pid %.50q, start %.50q: %w", fields[pidField], fields[startField], errors.Join(err, errNoTraces))
	}
	return Traces{PID: pid, Start: start, View: fields[viewField], Cgroup: fields[cgroupField]}, nil
}

var errNoTraces = errors.New("no process is named")

// Dead reports whether the worker process itself is proven to be dead; see ID.Dead.
func (t Traces) Dead() bool { return ID{t.PID, t.Start}.Dead() }

// InReach reports whether nothing can be left of a dead worker process that Sweep does
// not find. Either this process has the rights that the dead one had; or it sees that
// the control group is gone or empty, but for what this process has started itself. It may
// only be asked at the Place of the dead.
func (t Traces) InReach() bool {
	return t.View != "" && t.View == view() || t.Cgroup != "" && emptied(t.Cgroup)
}
