package procfs

import "sync"

const (
	// ProcEnv is the environment variable that carries the process id given by
	// the master. Whatever a worker process starts inherits it, so that it can
	// be found, and killed, when the worker process is dead.
	ProcEnv = "RESQUED_PROC"
	// RoleEnv is the environment variable that is WorkerRole in a worker process. What that
	// starts does not inherit it.
	RoleEnv = "RESQUED_ROLE"
	// WorkerRole is the value of RoleEnv in a worker process.
	WorkerRole = "worker"
)

// Descendants returns the living processes that descend from this one, parents before their
// children, without the spared ones and what is below them. It fails where it may have overlooked
// some (see Blind), and returns those that it has found.
func Descendants(spared map[ID]bool) (found []Seen, err error) {
	s := Sweep{Judge: func(p Seen) (Verdict, error) {
		if spared[p.ID] {
			return Spared, nil
		}
		found = append(found, p)
		return Other, nil
	}}
	_, _, err = s.look(nil)
	return found, err
}

// spawned are the worker processes of this process that were not waited for yet, by ID,
// and their names: they need not be asked, also while they cannot answer.
var spawned sync.Map

// Spawned returns the name of a worker process that this process has started and not waited
// for.
func Spawned(id ID) (proc string, ok bool) {
	name, ok := spawned.Load(id)
	proc, _ = name.(string)
	return proc, ok
}

// tag is what a process says of the worker process below which it was started.
type tag struct {
	Environment
	// proc is the name of that worker process; empty: none, or unreadable.
	proc   string
	worker bool // it is a worker process itself
}

func readTag(id ID, st Stat) (t tag, err error) {
	if proc, ok := Spawned(id); ok {
		return tag{proc: proc, worker: true}, nil
	}
	t.Environment, err = ReadEnvironment(id.PID, st)
	t.proc, t.worker = t.tags()
	return t, err
}
