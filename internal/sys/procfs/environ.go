package procfs

import (
	"bytes"
	"strconv"
)

// Environment is what can be read of the environment of a process. It is empty where the
// process has none, or does not show it to this process.
type Environment struct {
	variables []byte
	// Dying: its memory is gone, and with it its environment, but it may still hold files and
	// sockets, and have children that are about to go elsewhere.
	Dying bool
	// Executing: it executes another program right now, whose environment cannot be read yet.
	Executing bool
}

// ReadEnvironment reads the environment that a process was started with; st is what ReadStat
// has returned before. It fails if this process could not look (see Blind).
func ReadEnvironment(pid int, st Stat) (e Environment, err error) {
	name := strconv.Itoa(pid)
	env, err := environ(name)
	seen := env // one that dies has less of it later
	for tries := 0; err == nil && !st.whole(env) && tries < 5; tries++ {
		// Looked at afterwards: the other program may have begun meanwhile.
		if st, err = readStat(name); err != nil {
			return Environment{Dying: true}, Blind(err)
		}
		if e.Executing = len(env) == 0 && !st.placed(); e.Executing {
			break
		}
		if env, err = environ(name); len(env) > 0 {
			seen = env
		}
	}
	if err == nil && e.Executing { // or the kernel hides where its environment is
		err = openEnviron(name)
		e.Executing, err = err == nil, Blind(err)
	}
	// Last: one that executes another program now may be dying by then, but not the other way
	// round.
	if err == nil && len(env) == 0 {
		e.Dying, err = memoryGone(name)
		e.Dying = e.Dying || err != nil
		e.Executing = e.Executing && !e.Dying
	}
	e.variables = st.sound(seen)
	return e, Blind(err)
}

// sound returns what is sure of env: in part of an environment the last variable may have been
// cut off.
func (s Stat) sound(env []byte) []byte {
	if s.whole(env) {
		return env
	}
	return env[:bytes.LastIndexByte(env, 0)+1]
}

// Has reports whether the environment has the variable ("NAME=value").
func (e Environment) Has(variable string) bool {
	for v := range bytes.SplitSeq(e.variables, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// tags returns the name of the worker process in whose environment, or below which, a
// process was started, and whether it is a worker process itself.
func (e Environment) tags() (proc string, worker bool) {
	for v := range bytes.SplitSeq(e.variables, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(ProcEnv+"=")); ok {
			proc = string(value)
		}
	}
	return proc, e.Has(RoleEnv + "=" + WorkerRole)
}
