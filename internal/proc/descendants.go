package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cleanPasses is how often Sweep must find nothing. One look over /proc is no
// snapshot: a process may fork behind the reader's back.
const cleanPasses = 3

// Subreaper makes this process the parent of every orphan among its
// descendants, so that none of them gets away to init.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// Sweep kills with SIGKILL every process that belongs to the worker process proc
// and returns when none is left, or with an error when ctx ends before. The
// worker process itself counts too, so call it after it was reaped. killed
// counts the processes to which it was sent.
//
// Out of reach is only a process that has emptied its environment and outlives
// its parent.
func Sweep(ctx context.Context, proc string) (killed int, err error) {
	look := survey
	if ours(proc) {
		look = func() (processes, error) { return below(proc) }
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := time.Millisecond
	signalled := map[child]bool{}
	defer func() { killed = len(signalled) }()
	for clean := 0; clean < cleanPasses; {
		found, err := look()
		if err != nil && blind(err) == nil {
			return killed, fmt.Errorf("sweep %s: %w", proc, err)
		}
		// Who could not look must not say that nobody is left.
		left, unseen := 0, err
		for pid, p := range found {
			if !found.belongs(pid, proc) {
				if found.undecided(pid) {
					left = pid
				}
				continue
			}
			left = pid
			if !p.dying && found.kill(pid) {
				signalled[child{pid, p.start}] = true
			}
		}
		if left == 0 && unseen == nil {
			clean++
			continue
		}
		clean = 0
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return killed, errors.Join(fmt.Errorf("sweep %s: process %d is still there: %w", proc, left, ctx.Err()), unseen)
		case <-pause.C:
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
	return killed, nil
}

// Find returns the worker process proc itself if it lives, else 0. Processes
// that it had started do not count.
func Find(proc string) (pid int, err error) {
	found, err := survey()
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", proc, err)
	}
	for pid, p := range found {
		if p.proc == proc && p.worker {
			return pid, nil
		}
	}
	return 0, nil
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

// survey looks over all processes that this one may see.
func survey() (processes, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	found := processes{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, ok, err := see(name)
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
	// A zombie with threads: its first thread has ended, the others run.
	if err != nil || s.zombie() && s.threads < 2 {
		return process{}, false, blind(err)
	}
	p := process{parent: s.parent, start: s.start}
	env, err := environ(pid)
	for tries := 0; err == nil && len(env) == 0 && tries < 3; tries++ {
		// Looked at afterwards: the other program may have begun meanwhile.
		if s, err = readStat(pid); err != nil {
			return process{}, false, blind(err)
		}
		if p.executing = s.envEnd == 0; p.executing {
			break
		}
		env, err = environ(pid)
	}
	if err != nil {
		return process{}, false, err
	}
	p.proc, p.worker = readTags(env)
	if len(env) == 0 {
		// Kernel threads look the same, but nobody descends from them.
		var mem []byte
		mem, err = os.ReadFile("/proc/" + pid + "/statm")
		p.dying = err == nil && bytes.HasPrefix(mem, []byte("0 "))
		if p.executing = p.executing && err == nil && !p.dying; p.executing {
			p.executing, err = readable(pid)
		}
	}
	return p, true, blind(err)
}

// readable tells whether this process may read the environment of another: if not, the
// kernel hides where that is, too.
func readable(pid string) (bool, error) {
	f, err := os.Open("/proc/" + pid + "/environ")
	if err != nil {
		return false, blind(err)
	}
	return true, f.Close()
}

// environ returns the environment that a process was started with; empty if it
// has none, or is not ours to read.
func environ(pid string) ([]byte, error) {
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	if err == nil && len(env) > 0 || blind(err) != nil {
		return env, blind(err)
	}
	threads, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil || len(threads) < 2 {
		return nil, blind(err)
	}
	for _, t := range threads {
		env, err := os.ReadFile("/proc/" + pid + "/task/" + t.Name() + "/environ")
		if err == nil && len(env) > 0 || blind(err) != nil {
			return env, blind(err)
		}
	}
	return nil, nil
}

func readTags(env []byte) (proc string, worker bool) {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(ProcEnv+"=")); ok {
			proc = string(value)
		}
		worker = worker || string(v) == roleEnv+"="+workerRole
	}
	return proc, worker
}

// belongs tells whether pid is of the worker process proc: by its own tag, else
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

// undecided tells whether it cannot be told yet to whom pid belongs.
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

// kill sends SIGKILL to pid if that is still the process that was seen.
func (ps processes) kill(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	// The handle is open: from here on pid cannot become another process.
	s, err := readStat(strconv.Itoa(pid))
	return err == nil && s.start == ps[pid].start && p.Kill() == nil
}

// Strays reaps orphans that came to this process, a subreaper, with nobody
// waiting for them. A child that Go code here has started is none, however late
// it is waited for: whoever started it holds a handle of it. Use it from one
// goroutine.
type Strays struct {
	// Owned tells of a child process whether somebody waits for it; nil = none.
	Owned func(pid int) bool
	// Patience is how long a zombie is left to whom it may belong, because a
	// child can die before its parent could tell Owned about it; 0 = 2 s.
	Patience time.Duration

	seen map[child]time.Duration
}

// child is a process that cannot be mistaken for a later one with its pid.
type child struct {
	pid   int
	start uint64
}

// Reap looks for strays and reaps those that are due. Call it now and then, and
// on SIGCHLD.
func (s *Strays) Reap() (reaped int) {
	patience := s.Patience
	if patience == 0 {
		patience = 2 * time.Second
	}
	now := BootTime()
	seen := map[child]time.Duration{}
	var held map[int]bool // read when it is needed
	for _, pid := range children() {
		if s.Owned != nil && s.Owned(pid) {
			continue
		}
		st, err := readStat(strconv.Itoa(pid))
		if err != nil || !st.zombie() {
			continue
		}
		z := child{pid, st.start}
		first, ok := s.seen[z]
		if !ok {
			first = now
		}
		if held == nil && now-first >= patience {
			held = handles()
		}
		if now-first < patience || held[pid] {
			seen[z] = first
			continue
		}
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && got == pid {
			reaped++
		}
	}
	s.seen = seen
	return reaped
}

// handles returns the pids of the processes of which this one holds a handle (a
// pidfd), as os/exec does from the start of a process until somebody has waited
// for it.
func handles() map[int]bool {
	held := map[int]bool{}
	infos, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil {
			continue // closed since
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Pid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
					held[pid] = true
				}
			}
		}
	}
	return held
}

// children returns the pids of this process's children, dead ones included.
func children() []int {
	if !listsChildren() {
		return childrenByParent()
	}
	pids, _ := childrenOf("self")
	return pids
}

// childrenByParent is children for kernels without CONFIG_PROC_CHILDREN.
func childrenByParent() []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		name := filepath.Base(filepath.Dir(path))
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := readStat(name); err == nil && s.parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
