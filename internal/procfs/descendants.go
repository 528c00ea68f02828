package procfs

import (
	"errors"
	"os"
	"strconv"
	"sync"
)

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

// Descendant is a process below this one.
type Descendant struct {
	ID   ID
	Stat Stat
}

// Descendants returns what descends from this process, dead processes included, parents
// before their children, without the spared ones and what is below them. It fails where it may
// have overlooked some (see Blind), and returns those that it has found.
func Descendants(spared map[ID]bool) (found []Descendant, err error) {
	children := ChildLister()
	listed := map[int]bool{os.Getpid(): true}
	for todo := []int{os.Getpid()}; len(todo) > 0; todo = todo[1:] {
		pids, unseen := children(todo[0])
		err = errors.Join(err, unseen)
		for _, pid := range pids {
			s, unseen := ReadStat(pid)
			id := ID{pid, s.Start}
			// It may have another parent by now, but one that is here, else it is another process.
			if unseen != nil || spared[id] || !listed[s.Parent] {
				err = errors.Join(err, Blind(unseen))
				continue
			}
			listed[pid] = true
			found = append(found, Descendant{id, s})
			todo = append(todo, pid)
		}
	}
	return found, err
}

// process is what a survey sees of a process that is no zombie.
type process struct {
	parent int
	start  uint64
	// proc is the RESQUED_PROC in its environment; empty: none, or unreadable.
	proc   string
	worker bool
	// dying: its memory is gone, and with it its environment, but it may still
	// hold files and sockets.
	dying bool
	// executing: it executes another program right now, whose environment cannot be read
	// yet.
	executing bool
}

type processes map[int]process

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

// survey looks over all processes that this one may see.
func survey(see func(pid string) (process, bool, error)) (processes, error) {
	pids, err := everyone()
	if err != nil {
		return nil, err
	}
	found := processes{}
	for _, pid := range pids {
		p, ok, err := see(strconv.Itoa(pid))
		if err != nil {
			return found, err
		}
		if ok {
			found[pid] = p
		}
	}
	return found, nil
}

// see looks at one process; false if it is none any more. It fails if it could not look.
func see(pid string) (process, bool, error) {
	s, err := readStat(pid)
	if err != nil || s.Dead() {
		return process{}, false, Blind(err)
	}
	p := process{parent: s.Parent, start: s.Start}
	if number, _ := strconv.Atoi(pid); number != 0 {
		if proc, ok := Spawned(ID{number, s.Start}); ok {
			p.proc, p.worker = proc, true
			return p, true, nil
		}
	}
	env, err := environ(pid)
	p.proc, p.worker = readTags(env)
	for tries := 0; err == nil && p.proc == "" && !s.whole(env) && tries < 5; tries++ {
		// Looked at afterwards: the other program may have begun meanwhile.
		if s, err = readStat(pid); err != nil {
			return process{}, false, Blind(err)
		}
		if p.executing = len(env) == 0 && !s.placed(); p.executing {
			break
		}
		env, err = environ(pid)
		p.proc, p.worker = readTags(env)
	}
	if err != nil {
		return process{}, false, err
	}
	if len(env) == 0 {
		if p.executing {
			p.executing, err = readable(pid)
		}
		// Last: one that executes another program now may be dying by then, but not the
		// other way round. Kernel threads look the same, but no process of a job descends from them.
		if err == nil {
			p.dying, err = memoryGone(pid)
		}
		p.executing = p.executing && err == nil && !p.dying
	}
	return p, true, Blind(err)
}

// belongs reports whether pid is of the worker process proc: by its own tag, else
// by that of the nearest tagged ancestor. A dying process without one, below
// this process, may have been anybody's, so it counts.
func (ps processes) belongs(pid int, proc string) bool {
	self := os.Getpid()
	if pid == self {
		return false
	}
	dying := ps[pid].dying
	for range len(ps) {
		p, ok := ps[pid]
		switch {
		case !ok:
			return false
		case p.proc != "" && pid != self:
			return p.proc == proc
		case p.parent == self:
			return dying
		}
		pid = p.parent
	}
	return false
}

// undecided reports whether it cannot be told yet to whom pid belongs.
func (ps processes) undecided(pid int) bool {
	self := os.Getpid()
	if !ps[pid].executing {
		return false
	}
	for range len(ps) {
		p, ok := ps[pid]
		if !ok || pid == self {
			return true
		}
		if p.proc != "" {
			return false // belongs knows
		}
		pid = p.parent
	}
	return true
}
