package procfs

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Environ returns the environment that a process was started with. It is empty if the
// process has none, has lost it in dying, is just executing another program, or does not
// show it to this process. It fails if this process could not look (see Blind).
func Environ(pid int) ([]byte, error) { return environ(strconv.Itoa(pid)) }

// Bare reports whether a process whose environment could not be read has none for good, or
// none that this process may read. It is false for one that is dying, has ended, or is
// just executing another program. It fails if this process could not look (see Blind).
func Bare(pid int) (bool, error) {
	if err := openEnviron(strconv.Itoa(pid)); err != nil {
		return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM), Blind(err)
	}
	before, err := ReadStat(pid)
	if err != nil || !before.placed() {
		return false, Blind(err)
	}
	// It may have begun another program by then, or be about to: the kernel shows no environment
	// until the new one is in place.
	env, err := Environ(pid)
	if err != nil || len(env) > 0 {
		return false, err
	}
	after, err := ReadStat(pid)
	return err == nil && after.EnvStart == before.EnvStart && after.EnvEnd == before.EnvEnd, Blind(err)
}

// readable reports whether this process may read the environment of another: if not, the
// kernel hides where that is, too.
func readable(pid string) (bool, error) {
	err := openEnviron(pid)
	return err == nil, Blind(err)
}

// HasVariable reports whether env, which Environ has returned for the process, has the
// variable ("NAME=value"). In part of an environment the last one may have been cut off, and
// is none.
func (s Stat) HasVariable(env []byte, variable string) bool {
	if !s.whole(env) {
		env = complete(env)
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// complete returns those variables that were not cut off.
func complete(env []byte) []byte { return env[:bytes.LastIndexByte(env, 0)+1] }

// readTags returns the name of the worker process in whose environment, or below which, a
// process was started, and whether it is a worker process itself.
func readTags(env []byte) (proc string, worker bool) {
	for v := range bytes.SplitSeq(complete(env), []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(ProcEnv+"=")); ok {
			proc = string(value)
		}
		worker = worker || string(v) == RoleEnv+"="+WorkerRole
	}
	return proc, worker
}
