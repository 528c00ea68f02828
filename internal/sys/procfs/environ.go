package procfs

import (
	"bytes"
	"strconv"
)

// Environment is the readable part of a process's environment; empty if it has none or hides it.
type Environment struct {
	variables []byte
	// Dying: its memory is gone, including the environment, but it may still hold files and
	// sockets, and have children that are about to be adopted.
	Dying bool
	// Executing: it is executing another program, whose environment is not readable yet.
	Executing bool
}

// ReadEnvironment reads the environment that a process was started with; st is an earlier result
// of ReadStat. It fails if this process could not look (see Blind).
func ReadEnvironment(pid int, st Stat) (e Environment, err error) {
	name := strconv.Itoa(pid)
	env, err := environ(name)
	seen := env // a dying process has less of it later
	for tries := 0; err == nil && !st.whole(env) && tries < 5; tries++ {
		// Read after the environment: the other program may have begun since.
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
	if err == nil && e.Executing { // or the kernel hides the environment's address
		err = openEnviron(name)
		e.Executing, err = err == nil, Blind(err)
	}
	// Last: an executing process may be dying by now, but not the other way round.
	if err == nil && len(env) == 0 {
		e.Dying, err = memoryGone(name)
		e.Dying = e.Dying || err != nil
		e.Executing = e.Executing && !e.Dying
	}
	e.variables = st.sound(seen)
	return e, Blind(err)
}

// sound returns the reliable part of env: the last variable of a partial one may be cut off.
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

// tags returns the name of the worker process that a process belongs to, and whether the process
// is itself a worker process.
func (e Environment) tags() (proc string, worker bool) {
	for v := range bytes.SplitSeq(e.variables, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(ProcEnv+"=")); ok {
			proc = string(value)
		}
	}
	return proc, e.Has(RoleEnv + "=" + WorkerRole)
}
