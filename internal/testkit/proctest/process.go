package proctest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Process is a process as /proc shows it.
type Process struct {
	PID, Parent, Group int
	// State is the letter of proc(5): R, S, D, T, Z…
	State string
	// Title is the current command line, without padding.
	Title string
	// Environ is the environment at the process's start, as NAME=value.
	Environ []string
	// Start is the start time in clock ticks since boot.
	Start uint64
}

// String returns a description for failed tests.
func (p Process) String() string {
	return fmt.Sprintf("%d (parent %d, group %d, %s) %q", p.PID, p.Parent, p.Group, p.State, p.Title)
}

// Look reads one process. It returns false if the process does not exist.
func Look(pid int) (Process, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, false
	}
	// The name in brackets may hold anything, brackets included.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) < 20 {
		return Process{}, false
	}
	p := Process{PID: pid, State: fields[0]}
	p.Parent, _ = strconv.Atoi(fields[1])
	p.Group, _ = strconv.Atoi(fields[2])
	p.Start, _ = strconv.ParseUint(fields[19], 10, 64)
	// Both may be missing or empty for a process that is ending.
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	p.Title = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
	p.Environ = strings.Split(strings.TrimRight(string(environ), "\x00"), "\x00")
	return p, true
}

// Alive reports whether a process exists and is not a zombie.
func Alive(pid int) bool {
	p, ok := Look(pid)
	return ok && p.State != "Z" && p.State != "X"
}

// Env returns the value of an environment variable of the process.
func (p Process) Env(name string) string {
	for _, pair := range p.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// InnerPID returns the pid of the process in its own pid namespace, or "" when it is gone.
func (p Process) InnerPID() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			pids := strings.Fields(rest)
			return pids[len(pids)-1]
		}
	}
	return ""
}

// Descends reports whether ancestor is an ancestor of the process.
func (p Process) Descends(ancestor int) bool {
	for ok := true; ok && p.Parent > 1; p, ok = Look(p.Parent) {
		if p.Parent == ancestor {
			return true
		}
	}
	return false
}

// Find returns the living processes for which match returns true, without this process.
func Find(match func(Process) bool) []Process {
	var found []Process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, ok := Look(pid)
		if ok && p.State != "Z" && p.State != "X" && match(p) {
			found = append(found, p)
		}
	}
	return found
}

// Children returns the living children of a process.
func Children(pid int) []Process {
	return Find(func(p Process) bool { return p.Parent == pid })
}

// Memory returns the proportional set size of a process in bytes: its own memory and its part
// of shared memory. It returns 0 when the process is gone.
func Memory(pid int) int64 {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(rollup)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// CPUTime returns the processor time that the living threads of a process have used. It returns
// 0 when the process is gone.
func CPUTime(pid int) time.Duration {
	var total time.Duration
	// The process's stat counts in hundredths of a second.
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(stat), " ")
		ns, _ := strconv.ParseInt(ran, 10, 64)
		total += time.Duration(ns)
	}
	return total
}
