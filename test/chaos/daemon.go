package main

import (
	"bufio"
	"context"
	"encoding/json"
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

	"github.com/resqued/resqued/internal/faultproxy"
	"github.com/resqued/resqued/internal/proctest"
)

// tree are the processes of a daemon that is started again whenever it ends. Where the kernel
// permits it, two of the three are on one host and do not see each other.
type tree struct {
	name string
	// As in its configuration, for each store: a process of one thread waits for Redis in
	// another way than one of several.
	workerCount, threadCount int
	// lease is its job_lock_duration, and so how long its worker processes live in Redis
	// without a sign of life.
	lease time.Duration

	// place is the command prefix that puts a command on the daemon's host; empty if that is
	// not permitted. program is the daemon's program if it cannot access that of the harness.
	place []string
	// user is the user of the daemon; 0 means that of the harness.
	user int
	// container is set if place makes a PID namespace whose first process is the daemon.
	container bool
	program   string
	// beside is the program of another version, which takes turns with program at each start;
	// empty if there is none. turn counts these.
	beside string
	turn   int
	dir    string
	mark   string
	run    *chaos
	// parts are its masters, one for each store.
	parts []*machine

	mu      sync.Mutex
	lines   []line
	log     *os.File
	reading sync.WaitGroup

	// top is the process that was started: the master, or the one above those of several stores.
	top  int
	tap  *tap // of the log of its present processes
	done chan struct{}
	exit int
}

// machine is the part of a daemon that works one store, behind a proxy of its own: a master with
// its worker processes. If there is one store it is all of the daemon.
type machine struct {
	*tree
	store *chaos
	proxy *faultproxy.Proxy
	// pid is its master, as faults know it.
	pid int

	// mu guards the rest. The numbers are those in the daemon's own PID namespace.
	masters []int // every master that it has had
	killed  []int // those that got SIGKILL
}

// line is a line of the log and the time at which it was read.
type line struct {
	at   time.Duration
	text string
}

const config = `
%sthread_count: %d
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

// place of a store in the configuration; in front stands how it is indented.
const storeConfig = `%[1]sredis_url: %[2]s
%[1]snamespace: %[3]s
%[1]sworker_count: %[4]d
%[1]squeues: [%[5]s]
`

// configure writes the configuration file.
func (m *tree) configure() error {
	file := m.config()
	runner := ""
	if m.run.runners {
		runner = m.run.runnerText(m.mark)
	}
	var stores strings.Builder
	indent := ""
	if len(m.parts) > 1 {
		stores.WriteString("stores:\n")
		indent = "    "
	}
	var locked, unique []string
	for _, part := range m.parts {
		s := part.store
		if s.name != "" {
			fmt.Fprintf(&stores, "  %s:\n", s.name)
		}
		fmt.Fprintf(&stores, storeConfig, indent, url(part.proxy.Addr()), namespace, m.workerCount, strings.Join(s.queues(allQueues...), ", "))
		locked = append(locked, s.queues(lockedQueue, sharedQueue, uniqueQueue)...)
		unique = append(unique, s.queues(uniqueQueue)...)
	}
	text := fmt.Sprintf(config, &stores, m.threadCount, termTimeout, int(m.lease.Seconds())-1, int(m.lease.Seconds()),
		strings.Join(locked, ", "), strings.Join(unique, ", "), maxDeaths, m.run.scheduleConfig()+runner)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if m.user != 0 {
		return os.Chown(file, m.user, m.user)
	}
	return nil
}

func (m *tree) config() string { return filepath.Join(m.dir, m.name+".yaml") }

// start starts the daemon and waits until it works in each store.
func (m *tree) start(ctx context.Context) error { return m.startWithout(ctx, nil) }

// startWithout starts the daemon and waits until it works in each store but one.
func (m *tree) startWithout(ctx context.Context, without *machine) error {
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
			m.top = cmd.Process.Pid
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
		outside := m.top
		err := m.run.await(ctx, 15*time.Second, "the container of daemon "+m.name, func() bool {
			children := proctest.Children(outside)
			if len(children) == 1 {
				m.top = children[0].PID
			}
			return m.top != outside
		})
		if err != nil {
			return err
		}
	}
	if len(m.parts) == 1 {
		number := m.top
		if m.container {
			number = 1
		}
		m.mu.Lock()
		m.parts[0].masters = append(m.parts[0].masters, number)
		m.mu.Unlock()
		m.parts[0].pid = m.top
		return m.await(ctx, 15*time.Second, from, `"msg":"ready"`)
	}
	if err := m.await(ctx, 15*time.Second, from, `"msg":"ready"`, `"stores":`); err != nil {
		return err
	}
	for _, part := range m.parts {
		if part != without {
			if err := part.await(ctx, 15*time.Second, from, append(part.own(), `"msg":"ready"`)...); err != nil {
				return err
			}
		}
		if err := part.follow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// number returns the present master in its own PID namespace; 0 for none.
func (m *machine) number() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.masters) == 0 {
		return 0
	}
	return m.masters[len(m.masters)-1]
}

// own are texts that the lines of its log have in common.
func (m *machine) own() []string {
	if m.store.name == "" {
		return nil
	}
	return []string{fmt.Sprintf(`"store":%q`, m.store.name)}
}

// follow finds the process of its present master.
func (m *machine) follow(ctx context.Context) error {
	return m.run.await(ctx, patience, "the master of store "+m.store.name+" of daemon "+m.name, func() bool {
		number := strconv.Itoa(m.number())
		for _, p := range proctest.Children(m.top) {
			if p.InnerPID() == number {
				m.pid = p.PID
				return true
			}
		}
		return false
	})
}

// followed complains if its master has changed without being told to.
func (m *machine) followed(ctx context.Context) error {
	if len(m.parts) == 1 || m.pid == 0 {
		return nil
	}
	if p, ok := proctest.Look(m.pid); ok && p.State != "Z" && p.InnerPID() == strconv.Itoa(m.number()) {
		return nil
	}
	select {
	case <-m.done:
		return nil // all of it
	default:
	}
	m.run.complain("the master of store %s of daemon %s ended by itself", m.store.name, m.name)
	return m.follow(ctx)
}

// learn notes the master that a line of the log says has started.
func (m *tree) learn(text string) {
	if len(m.parts) == 1 || !strings.Contains(text, `"msg":"master of a store started"`) {
		return
	}
	var said struct {
		Store string `json:"store"`
		PID   int    `json:"pid"`
	}
	if json.Unmarshal([]byte(text), &said) != nil {
		return
	}
	for _, part := range m.parts {
		if part.store.name == said.Store {
			part.masters = append(part.masters, said.PID)
		}
	}
}

// read reads the log of one master and of the worker processes that it has left.
func (m *tree) read(r *tap) {
	defer func() { _ = r.Close() }()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), junk) {
			continue
		}
		at, text := m.run.saidAt(scanner.Text()), storeLast(scanner.Text())
		m.mu.Lock()
		if strings.HasPrefix(scanner.Text(), "{") { // no stack of one that died
			m.lines = append(m.lines, line{at, text})
			m.learn(text)
		}
		_, _ = fmt.Fprintf(m.log, "%.3f %s\n", at.Seconds(), scanner.Text())
		m.mu.Unlock()
	}
}

// storeLast moves the name of the store to the end of a line: the rest is as in a daemon without
// stores.
func storeLast(text string) string {
	before, rest, ok := strings.Cut(text, `,"store":"`)
	if !ok {
		return text
	}
	name, rest, ok := strings.Cut(rest, `"`)
	if !ok || !slices.Contains(storeNames, name) || !strings.HasSuffix(rest, "}") {
		return text
	}
	return before + strings.TrimSuffix(rest, "}") + `,"store":"` + name + `"}`
}

// seen returns how many lines were read so far.
func (m *tree) seen() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lines)
}

// said returns the first line, from index from on, that contains one of the texts.
func (m *tree) said(from int, texts ...string) (line, bool) {
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
func (m *tree) await(ctx context.Context, limit time.Duration, from int, texts ...string) error {
	return m.run.await(ctx, limit, fmt.Sprintf("daemon %s to say %s", m.name, strings.Join(texts, " … ")), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.lines[from:], func(l line) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l.text, text) })
		})
	})
}

// awaitExit waits until the daemon has ended.
func (m *tree) awaitExit(ctx context.Context, limit time.Duration) (code int, err error) {
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

// awaitEnd waits until the master has ended. Of one below another process no exit code is known.
func (m *machine) awaitEnd(ctx context.Context, limit time.Duration) (code int, err error) {
	if len(m.parts) == 1 {
		return m.awaitExit(ctx, limit)
	}
	return 0, m.run.await(ctx, limit, "the end of the master of store "+m.store.name+" of daemon "+m.name, func() bool { return !proctest.Alive(m.pid) })
}

// again waits until another master works: the one that the process above starts, or one that is started here.
func (m *machine) again(ctx context.Context) error {
	if len(m.parts) == 1 {
		return m.start(ctx)
	}
	before := m.pid
	var number int
	err := m.run.await(ctx, 15*time.Second, "another master of store "+m.store.name+" of daemon "+m.name, func() bool {
		number = m.number()
		for _, p := range proctest.Children(m.top) {
			if p.PID != before && p.InnerPID() == strconv.Itoa(number) {
				m.pid = p.PID
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	return m.await(ctx, 15*time.Second, 0, append(m.own(), `"msg":"ready"`, fmt.Sprintf(`"pid":%d,`, number))...)
}

// signal signals the master if one was started.
func (m *machine) signal(sig syscall.Signal) {
	if m.pid == 0 {
		return // the number of the harness's own group
	}
	if sig == syscall.SIGKILL {
		m.mayNotLeave()
	}
	_ = syscall.Kill(m.pid, sig)
}

// mayNotLeave notes that the master may not remove its entry.
func (m *machine) mayNotLeave() {
	if m.pid == 0 {
		return
	}
	number := m.number()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed = append(m.killed, number)
}

// signalTop signals the daemon.
func (m *tree) signalTop(sig syscall.Signal) {
	if len(m.parts) == 1 {
		m.parts[0].signal(sig)
	} else if m.top != 0 {
		if sig == syscall.SIGKILL { // its masters drain by themselves; the Redis of one may be away when that has ended
			for _, part := range m.parts {
				part.mayNotLeave()
			}
		}
		_ = syscall.Kill(m.top, sig)
	}
}

// killMasters kills the daemon and all of its masters.
func (m *tree) killMasters() {
	m.signalTop(syscall.SIGKILL)
	if len(m.parts) > 1 {
		for _, part := range m.parts {
			part.signal(syscall.SIGKILL)
		}
	}
}

// process is a living process of a machine.
type process struct {
	proctest.Process
	// proc is the name of the worker process that it is or belongs to.
	proc string
}

// workers returns the living worker processes of the present master that have a name.
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
func (m *tree) commands() []process {
	return slices.DeleteFunc(m.processes(), func(p process) bool { return p.Env(roleEnv) != roleCommand })
}

// processes returns all living processes of the machine, each once. Commands do not inherit the whole
// environment, but they have the mark.
func (m *tree) processes() []process {
	var all []process
	for _, p := range proctest.Find(func(p proctest.Process) bool { return p.Env(markEnv) == m.mark }) {
		all = append(all, process{p, p.Env("RESQUED_PROC")})
	}
	runners, templates := m.kin()
	for _, p := range slices.Concat(runners, templates) {
		// Where their environment can be read they are there already.
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

// signalAll sends a signal to every process of the daemon, the topmost first, and returns them.
func (m *tree) signalAll(sig syscall.Signal) []process {
	if sig == syscall.SIGKILL {
		m.killMasters()
	} else {
		m.signalTop(sig)
	}
	var hit []process
	known := map[int]bool{}
	// A single scan of /proc is no snapshot.
	for range 3 {
		for _, p := range m.processes() {
			if p.PID != m.top || sig == syscall.SIGKILL {
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

// wasKilled reports whether a master of this machine was killed before it could leave, or the process above it, so that it
// may have left while its Redis was away: its entry expires.
func (m *machine) wasKilled(master string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return has(m.killed, master)
}

// has reports whether a name contains the pid of one of some masters.
func has(masters []int, name string) bool {
	return slices.ContainsFunc(masters, func(pid int) bool { return strings.Contains(name, ":"+strconv.Itoa(pid)+"-") })
}

// quit ends the daemon normally.
func (m *tree) quit(ctx context.Context) error {
	m.signalTop(syscall.SIGQUIT)
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
