package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/resqued/resqued/bench/job"
)

// child is a process of the harness with its descendants.
type child struct {
	pid  int
	done chan struct{}
}

// stderrName is the file in a measurement's directory for the standard error of its processes.
// It is shown if the measurement fails.
const stderrName = "stderr"

// start starts a program that cannot outlive the harness. Its output goes to a file in its
// working directory.
func start(cmd *exec.Cmd) (*child, error) {
	f, err := os.OpenFile(filepath.Join(cmd.Dir, stderrName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	cmd.Stderr = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c := &child{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its effects show how it ended
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the process and its descendants, and waits for the process.
func (c *child) kill() {
	for range 3 { // one scan of /proc is not a snapshot
		for _, p := range tree(c.pid) {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
	}
	<-c.done
}

func tree(roots ...int) []int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if f := stat(pid); f != nil && f[0] != "Z" {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	all := slices.Clone(roots)
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// stat returns the fields of /proc/PID/stat after the name.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name in brackets may contain anything, including brackets.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	return fields
}

// cpu returns the processor time that processes and their ended children have used.
func cpu(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		sum += job.Clock(int32(^pid)<<3 | 2) // the process's own clock, in nanoseconds
		if f := stat(pid); f != nil {
			for _, field := range f[13:15] { // cutime, cstime
				ticks, _ := strconv.Atoi(field)
				sum += time.Duration(ticks) * 10 * time.Millisecond
			}
		}
	}
	return sum
}

// memory returns a field of /proc/PID/status in MiB, for example VmHWM or VmRSS.
func memory(pid int, field string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), field+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseFloat(fields[0], 64)
	return kib / 1024
}

func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// forever keeps a finished process alive until it is killed, so that its usage can be read. Go
// would end a program whose goroutines all wait for each other.
func forever() error {
	for {
		pause(time.Hour)
	}
}
