package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/internal/testkit/proctest"
)

// machine is a daemon behind its own proxy. It is started again whenever it ends. Where the
// kernel permits, two of the three are on one host and do not see each other.
type machine struct {
	name string
	// As in its configuration. A process of one thread waits for Redis in another way than one
	// of several.
	workerCount, threadCount int
	// lease is its job_lock_duration, for which its worker processes live in Redis without a
	// sign of life.
	lease time.Duration

	// place is the command prefix that puts a command on the daemon's host; empty if not
	// permitted. program is the daemon's program if it cannot access the harness's.
	place []string
	// user is the daemon's user; 0 = the harness's.
	user int
	// container: place makes a PID namespace whose first process is the daemon.
	container bool
	program   string
	// beside is the program of another version, alternating with program at each start; "" =
	// none. turn counts the starts.
	beside string
	turn   int
	dir    string
	mark   string
	run    *chaos
	proxy  *faultproxy.Proxy

	mu      sync.Mutex
	lines   []line
	log     *os.File
	reading sync.WaitGroup
	// masters are all its masters, killed those that got SIGKILL, by pid in the daemon's own PID
	// namespace.
	masters, killed []int

	pid  int  // its master
	tap  *tap // of the log of its current processes
	done chan struct{}
	exit int
}

// line is a line of the log and the time at which it was read.
type line struct {
	at   time.Duration
	text string
}

const config = `
redis_url: %s
namespace: %s
worker_count: %d
queues: [%s]
thread_count: %d
jobs_per_fork: 100
interval: 0.05
resque_term_timeout: %s
heartbeat_frequency: %d
job_lock_duration: %d
locketed_queues: [%s]
unique_queues: [%s]
max_deaths: %d
log_format: json
%s`

// configure writes the configuration file.
func (m *machine) configure() error {
	file := m.config()
	runner := ""
	if m.run.runners {
		runner = m.run.runnerText(m.mark)
	}
	text := fmt.Sprintf(config, url(m.proxy.Addr()), namespace, m.workerCount, strings.Join(allQueues, ", "), m.threadCount, termTimeout,
		int(m.lease.Seconds())-1, int(m.lease.Seconds()), strings.Join([]string{lockedQueue, sharedQueue, uniqueQueue}, ", "), uniqueQueue,
		maxDeaths, limitConfig+m.run.scheduleConfig()+runner)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if m.user != 0 {
		return os.Chown(file, m.user, m.user)
	}
	return nil
}

func (m *machine) config() string { return filepath.Join(m.dir, m.name+".yaml") }

// start starts the daemon and waits until it works.
func (m *machine) start(ctx context.Context) error {
	if err := m.configure(); err != nil {
		return err
	}
	argv := append(slices.Clone(m.place), m.nextProgram(), "work", "--config", m.config())
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = m.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir, "TZ=UTC", "GOTRACEBACK=none", "RESQUED_CONTROL_SOCKET=off",
		roleEnv + "=" + roleDaemon, ledgerEnv + "=" + m.run.ledgerDir, markEnv + "=" + m.mark,
		slowEnv + "=" + m.run.o.slow.String(), toolEnv + "=" + m.run.tool(),
	}
	if m.run.runners {
		cmd.Env = append(cmd.Env, runnerEnv+"="+m.mark)
	}
	// A daemon must not outlive a harness that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = w, w
	from := m.seen()
	started := make(chan error, 1)
	done := make(chan struct{})
	log := &tap{File: r}
	m.done, m.tap = done, log
	m.run.tasks.Go(func() {
		// Pdeathsig follows the thread that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		_ = w.Close()
		if err == nil {
			m.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState has the rest
			m.mu.Lock()
			m.exit = cmd.ProcessState.ExitCode()
			m.mu.Unlock()
		}
		close(done)
	})
	if err := <-started; err != nil {
		_ = r.Close()
		return fmt.Errorf("start daemon %s: %w", m.name, err)
	}
	m.reading.Go(func() { m.read(log) })
	if m.container {
		// The started process is unshare; the first process of the container is its child.
		outside := m.pid
		err := m.run.await(ctx, 15*time.Second, "the container of daemon "+m.name, func() bool {
			children := proctest.Children(outside)
			if len(children) == 1 {
				m.pid = children[0].PID
			}
			return m.pid != outside
		})
		if err != nil {
			return err
		}
	}
	number := m.pid
	if m.container {
		number = 1
	}
	m.mu.Lock()
	m.masters = append(m.masters, number)
	m.mu.Unlock()
	return m.await(ctx, 15*time.Second, from, `"msg":"ready"`)
}

// number returns the current master's pid in its own PID namespace; 0 = none.
func (m *machine) number() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.masters) == 0 {
		return 0
	}
	return m.masters[len(m.masters)-1]
}

// read reads the log of one master and its worker processes.
func (m *machine) read(r *tap) {
	defer func() { _ = r.Close() }()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), junk) {
			continue
		}
		at, text := m.run.saidAt(scanner.Text()), scanner.Text()
		m.mu.Lock()
		if strings.HasPrefix(scanner.Text(), "{") { // not a stack trace
			m.lines = append(m.lines, line{at, text})
		}
		_, _ = fmt.Fprintf(m.log, "%.3f %s\n", at.Seconds(), scanner.Text())
		m.mu.Unlock()
	}
}

// seen returns how many lines were read so far.
func (m *machine) seen() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lines)
}

// said returns the first line, from index from on, that contains one of the texts.
func (m *machine) said(from int, texts ...string) (line, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lines[from:] {
		for _, text := range texts {
			if strings.Contains(l.text, text) {
				return l, true
			}
		}
	}
	return line{}, false
}

// await waits for a line, from index from on, that contains all texts.
func (m *machine) await(ctx context.Context, limit time.Duration, from int, texts ...string) error {
	return m.run.await(ctx, limit, fmt.Sprintf("daemon %s to say %s", m.name, strings.Join(texts, " … ")), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.lines[from:], func(l line) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l.text, text) })
		})
	})
}

// awaitExit waits until the daemon has ended.
func (m *machine) awaitExit(ctx context.Context, limit time.Duration) (code int, err error) {
	err = m.run.await(ctx, limit, "the end of daemon "+m.name, func() bool {
		select {
		case <-m.done:
			return true
		default:
			return false
		}
	})
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit, nil
}

// signal signals the master if one was started.
func (m *machine) signal(sig syscall.Signal) {
	if m.pid == 0 {
		return // 0 is the harness's own group
	}
	if sig == syscall.SIGKILL { // it may not remove its entry
		number := m.number()
		m.mu.Lock()
		m.killed = append(m.killed, number)
		m.mu.Unlock()
	}
	_ = syscall.Kill(m.pid, sig)
}

// process is a living process of a machine.
type process struct {
	proctest.Process
	// proc is the name of the worker process that it is or belongs to.
	proc string
}

// workers returns the living worker processes of the current master that have a name.
func (m *machine) workers() []process {
	var all []process
	for _, p := range m.processes() {
		if p.Parent == m.pid && p.proc != "" && p.PID != m.pid {
			all = append(all, p)
		}
	}
	return all
}

// commands returns the living commands of jobs.
func (m *machine) commands() []process {
	return slices.DeleteFunc(m.processes(), func(p process) bool { return p.Env(roleEnv) != roleCommand })
}

// processes returns all living processes of the machine, each once. Commands do not inherit the
// whole environment, but have the mark.
func (m *machine) processes() []process {
	var all []process
	for _, p := range proctest.Find(func(p proctest.Process) bool { return p.Env(markEnv) == m.mark }) {
		all = append(all, process{p, p.Env("RESQUED_PROC")})
	}
	runners, templates := m.kin()
	for _, p := range slices.Concat(runners, templates) {
		// Processes with a readable environment are included already.
		if !slices.ContainsFunc(all, func(known process) bool { return known.PID == p.PID }) {
			all = append(all, p)
		}
	}
	return all
}

func names(all []process) []string {
	var names []string
	for _, p := range all {
		if p.proc != "" && !slices.Contains(names, p.proc) {
			names = append(names, p.proc)
		}
	}
	return names
}

// signalAll signals every process of the daemon, the topmost first, and returns them.
func (m *machine) signalAll(sig syscall.Signal) []process {
	m.signal(sig)
	var hit []process
	known := map[int]bool{}
	// A single scan of /proc is not a snapshot.
	for range 3 {
		for _, p := range m.processes() {
			if p.PID != m.pid || sig == syscall.SIGKILL {
				_ = syscall.Kill(p.PID, sig)
			}
			if !known[p.PID] {
				known[p.PID] = true
				hit = append(hit, p)
			}
		}
	}
	return hit
}

// owns reports whether a worker process belongs to this machine.
func (m *machine) owns(worker string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return has(m.masters, worker)
}

// wasKilled reports whether a master of this machine was killed before it could leave: its entry
// expires.
func (m *machine) wasKilled(master string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return has(m.killed, master)
}

// has reports whether a name contains the pid of one of the masters.
func has(masters []int, name string) bool {
	return slices.ContainsFunc(masters, func(pid int) bool { return strings.Contains(name, ":"+strconv.Itoa(pid)+"-") })
}

// quit ends the daemon normally.
func (m *machine) quit(ctx context.Context) error {
	m.signal(syscall.SIGQUIT)
	code, err := m.awaitExit(ctx, 20*time.Second)
	if err != nil {
		for _, p := range m.processes() {
			err = fmt.Errorf("%w; there is %s", err, p.Process)
		}
	}
	if err == nil && code != 0 {
		err = errors.New("daemon " + m.name + " left with exit code " + strconv.Itoa(code))
	}
	return err
}
