package handler

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
)

// look goes over the descendants of this process, to which every orphan among
// them comes (see setUp), and returns how many living ones belong to p. With
// kill it kills them and reaps those that have died; without, only the group is
// looked at.
//
// What belongs to p is in its group, has its mark, or has its tag in the environment.
// unclear are those with the mark of no run here and no environment right now: a process that
// is dying, with children that are about to become visible here, or one that is just being
// replaced by another program. What was there before the command is neither. Out of reach
// is only a process that has left the group, taken off its mark, emptied its environment
// and outlived its parent.
func (p *process) look(kill bool) (left, unclear int) {
	own, before := unix.Getpgrp(), blinded.Load()
	leader, self := p.leader.PID, os.Getpid()
	began, _ := readStat(leader) // zero where it is hidden
	children := childLister()
	todo := children(self)
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if pid != leader && p.runner.owns(pid) {
			continue // another job's, with all that is below it
		}
		todo = append(todo, children(pid)...)
		st, ok := readStat(pid)
		if !ok {
			if p.hidden(pid, kill) {
				left++
				p.lasting = pid
			}
			continue
		}
		if pid == leader && st.dead() {
			continue
		}
		ours := st.group == leader
		switch {
		case st.dead():
			if kill && st.parent == self && (ours || p.killed[pid] == st.start) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
			continue
		case !ours && kill && st.start >= began.start:
			m := mark.Of(pid)
			if ours = p.mark != 0 && m == p.mark; ours || m.IsRun() && m.Worker() == p.mark.Worker() {
				break // or of another run
			}
			env := environ(pid)
			ours = hasVariable(env, "RESQUED_JOB="+p.tag)
			if len(env) == 0 && st.group != own && !bare(pid) {
				unclear++
			}
		}
		if ours {
			left++
			p.lasting = pid
			if kill && killExactly(pid, st.start) {
				if p.killed == nil {
					p.killed = map[int]uint64{}
				}
				p.killed[pid] = st.start
			}
		}
	}
	if left == 0 && blinded.Load() != before {
		left++ // whoever it is
	}
	return left, unclear
}

// blinded counts what could not be looked at because this process may open no more
// files: it sees no processes then, and must not think that there are none.
var blinded atomic.Int64

func noteBlind(err error) {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		blinded.Add(1)
	}
}

// readFile reads a file below /proc.
func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	noteBlind(err)
	return text, err
}

// killExactly sends SIGKILL to the process with that number and start time.
func killExactly(pid int, start uint64) bool {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = handle.Release() }()
	// The handle is open: from here on the number cannot become another process.
	st, ok := readStat(pid)
	return ok && st.start == start && handle.Kill() == nil
}

// stat is what /proc/<pid>/stat says.
type stat struct {
	state         byte
	parent, group int
	threads       int
	start         uint64 // clock ticks since boot
	// envEnd is the end of the environment in its memory; 0 if it has none now, or hides it.
	envEnd uint64
}

// dead: a zombie whose other threads, if it had any, have ended too.
func (s stat) dead() bool { return s.state == 'X' || s.state == 'Z' && s.threads < 2 }

func readStat(pid int) (stat, bool) {
	text, err := readFile(procPath(pid, "stat"))
	if err != nil {
		return stat{}, false
	}
	// The name in parentheses may hold anything, parentheses included.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 49 {
		return stat{}, false
	}
	s := stat{state: fields[0][0]}
	s.parent, _ = strconv.Atoi(fields[1])
	s.group, _ = strconv.Atoi(fields[2])
	s.threads, _ = strconv.Atoi(fields[17])
	s.start, _ = strconv.ParseUint(fields[19], 10, 64)
	s.envEnd, _ = strconv.ParseUint(fields[48], 10, 64)
	return s, true
}

// environ returns the environment with which a process was started; empty if it
// has none, has lost it in dying, or is not ours to read.
func environ(pid int) []byte {
	env, err := readFile(procPath(pid, "environ"))
	if err == nil && len(env) > 0 {
		return env
	}
	// The first thread of a process may have ended while others run.
	for _, thread := range tasks(pid) {
		if env, err := readFile(procPath(pid, "task/"+thread+"/environ")); err == nil && len(env) > 0 {
			return env
		}
	}
	return nil
}

// bare reports whether a process, of which no environment could be read, has none for good,
// or none that may be read.
func bare(pid int) bool {
	f, err := os.Open(procPath(pid, "environ"))
	noteBlind(err)
	if err != nil {
		return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	}
	_ = f.Close()
	st, ok := readStat(pid)
	if !ok || st.envEnd == 0 {
		return false
	}
	return len(environ(pid)) == 0 // it may have begun another program by then
}

func hasVariable(env []byte, variable string) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// listsChildren: this kernel has the children files of /proc.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// childLister returns a function that lists the children of a process.
func childLister() func(pid int) []int {
	if listsChildren() {
		return childrenOf
	}
	return childrenByParent()
}

func childrenOf(pid int) []int {
	var pids []int
	for _, thread := range tasks(pid) {
		text, err := readFile(procPath(pid, "task/"+thread+"/children"))
		if err != nil {
			continue // it has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// childrenByParent looks over all processes once.
func childrenByParent() func(pid int) []int {
	children := map[int][]int{}
	for _, name := range names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	return func(pid int) []int { return children[pid] }
}

// tasks returns the threads of a process.
func tasks(pid int) []string { return names(procPath(pid, "task")) }

func names(dir string) []string {
	d, err := os.Open(dir)
	noteBlind(err)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	list, err := d.Readdirnames(-1) // what could be read counts
	noteBlind(err)
	return list
}

func procPath(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }
