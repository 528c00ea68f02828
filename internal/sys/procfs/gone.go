package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Traces are a worker process's own data by which others of its Place find out whether anything
// of it is left.
type Traces struct {
	PID   int
	Start uint64
	// View identifies the rights that decide which processes a process sees in /proc and may
	// signal. A process with the same View can do both to this process and its descendants.
	// Empty: unknown.
	View string
	// Cgroup is the control group of the process and its descendants, prefixed with the cgroup
	// namespace. Empty: none of its own.
	Cgroup string
}

// Fields of a worker process's entry in Redis.
const (
	pidField    = "pid"
	startField  = "start"
	viewField   = "view"
	cgroupField = "cgroup"
)

// TraceFields returns the names of the fields of Traces.Fields.
func TraceFields() []string { return []string{pidField, startField, viewField, cgroupField} }

// TracesOfSelf returns the traces of this process.
func TracesOfSelf() (Traces, error) {
	self, err := SelfStat()
	if err != nil {
		return Traces{}, fmt.Errorf("traces: %w", err)
	}
	return Traces{PID: os.Getpid(), Start: self.Start, View: view(), Cgroup: cgroup()}, nil
}

// Fields returns the fields that ParseTraces reads.
func (t Traces) Fields() map[string]string {
	return map[string]string{
		pidField: strconv.Itoa(t.PID), startField: strconv.FormatUint(t.Start, 10), viewField: t.View, cgroupField: t.Cgroup,
	}
}

// ParseTraces reads the fields of an entry in Redis. It fails if they do not name a process.
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

// InReach reports whether Sweep finds everything that a dead worker process may have left.
// Either this process has the same rights, or the control group is gone or holds only this
// process and its descendants. Ask only at the dead process's Place.
func (t Traces) InReach() bool {
	return t.View != "" && t.View == view() || t.Cgroup != "" && emptied(t.Cgroup)
}
