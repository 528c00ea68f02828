package procfs

import "sync"

const (
	// ProcEnv is the environment variable with the process id that the master has given. All
	// descendants of a worker process inherit it, so they can be found and killed once it is
	// dead.
	ProcEnv = "RESQUED_PROC"
	// RoleEnv is the environment variable that is WorkerRole in a worker process. Its children
	// do not inherit it.
	RoleEnv    = "RESQUED_ROLE"
	WorkerRole = "worker"
)

// Descendants returns the living descendants of this process, parents before children, without
// the spared ones and their descendants. If it may have overlooked some (see Blind), it returns
// an error with the rest.
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

// spawned maps the IDs of this process's worker processes that are not reaped yet to their
// names. They need not be asked, even while they cannot answer.
var spawned sync.Map

// Spawned returns the name of a worker process that this process has started and not reaped.
func Spawned(id ID) (proc string, ok bool) {
	name, ok := spawned.Load(id)
	proc, _ = name.(string)
	return proc, ok
}

// tag is what a process's environment says about its worker process.
type tag struct {
	Environment
	// proc is that worker process's name; empty = none, or unreadable.
	proc   string
	worker bool // it is itself a worker process
}

func readTag(id ID, st Stat) (t tag, err error) {
	if proc, ok := Spawned(id); ok {
		return tag{proc: proc, worker: true}, nil
	}
	t.Environment, err = ReadEnvironment(id.PID, st)
	t.proc, t.worker = t.tags()
	return t, err
}
