package harness

import (
	"bytes"
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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// Options configure a daemon. The zero value is one process of one thread that works every queue
// in the shared Redis.
type Options struct {
	// App runs the program with handlers in Go instead of the stock binary.
	App bool
	// Binary is the path of another program to run.
	Binary string
	// Workers, Threads and JobsPerFork are as in the configuration. Zero means 1 for the first
	// two and no limit for the last.
	Workers, Threads, JobsPerFork int
	// Queues has the format of the environment variable: "high,low:4"; "" = "*".
	Queues string
	// Config holds further lines of the configuration file.
	Config string
	// Env holds further environment variables, NAME=value, which take precedence.
	Env []string
	// Args follow the verb.
	Args []string
	// Verb is the verb of the binary; "" = "work".
	Verb string
	// Redis is a server for this test alone; nil means the shared one.
	Redis *redistest.Server
	// Namespace is set by tests in which two daemons share one.
	Namespace string
	// Host runs the daemon under another host name: then it seems to be on another machine, for
	// itself and others. The test is skipped without root.
	Host string
	// Under is a command to which the program and its arguments are appended: "unshare",
	// "--pid", …. The test checks that it has the rights for that.
	Under []string
	// User is the user to which Under switches, if not root; it gets the daemon's files.
	User int
	// Trace is the directory in which jobs of the test program note, outside of Redis, when they
	// hold their locks.
	Trace string
	// Output gets the daemon's output; nil = Log.
	Output *os.File
	// Unready makes Start return at once instead of waiting until the daemon works jobs.
	Unready bool
}

// Daemon is a running resqued: a master and its worker processes.
type Daemon struct {
	PID   int
	Space string
	// Told is the time of the last Signal.
	Told time.Time
	// URL is the address of its Redis.
	URL    string
	Client *redis.Client
	// Dir is the daemon's working directory, which is removed after the test.
	Dir string
	// ConfigFile is the path of its configuration file.
	ConfigFile string
	// Trace is Options.Trace.
	Trace string

	tb            testing.TB
	forgetMasters bool

	mark string
	// name identifies the master in the names of its worker processes.
	name   string
	notify *notifications
	log    *logBuffer
	cmd    *exec.Cmd
	done   chan struct{}
}

// Start starts a daemon and, unless Unready is set, waits until it is ready. After the test the
// daemon is killed, and the test fails if any process of it is left.
func Start(tb testing.TB, o Options) *Daemon {
	tb.Helper()
	server := o.Redis
	if server == nil {
		server = redistest.Shared(tb)
	}
	if o.Namespace == "" {
		o.Namespace = redistest.Namespace(tb)
	}
	d := &Daemon{
		Space:  o.Namespace,
		URL:    server.URL(),
		Client: server.Client(tb),
		Dir:    tb.TempDir(),
		tb:     tb,
		mark:   fmt.Sprintf("%s-%d", o.Namespace, time.Now().UnixNano()),
		Trace:  o.Trace,
		notify: listen(tb),
		log:    &logBuffer{},
		done:   make(chan struct{}),
	}
	d.ConfigFile = filepath.Join(d.Dir, "resqued.yaml")
	d.Configure(o.Config)

	binary := o.Binary
	switch {
	case binary != "":
	case o.App:
		binary = App(tb)
	default:
		binary = Binary(tb)
	}
	if o.Verb == "" {
		o.Verb = "work"
	}
	if o.Queues == "" {
		o.Queues = "*"
	}
	args := append([]string{o.Verb, "--config", d.ConfigFile}, o.Args...)
	d.cmd = exec.Command(binary, args...)
	if o.Host != "" {
		d.cmd = onHost(tb, o.Host, binary, args)
	}
	if len(o.Under) > 0 {
		d.cmd = exec.Command(o.Under[0], slices.Concat(o.Under[1:], []string{binary}, args)...)
	}
	if o.User != 0 {
		d.letIn(o.User)
	}
	d.cmd.Dir = d.Dir
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if o.Output != nil {
		d.cmd.Stdout, d.cmd.Stderr = o.Output, o.Output
	}
	d.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.Dir, "TZ=UTC",
		markEnv + "=" + d.mark,
		"RESQUED_CONFIG=none", // for other verbs: ignore the machine's own
		"REDIS_URL=" + server.URL(),
		"RESQUE_NAMESPACE=" + d.Space,
		"WORKER_COUNT=" + strconv.Itoa(max(o.Workers, 1)),
		"THREAD_COUNT=" + strconv.Itoa(max(o.Threads, 1)),
		"JOBS_PER_FORK=" + strconv.Itoa(o.JobsPerFork),
		"QUEUES=" + o.Queues,
		"RESQUED_LOG_FORMAT=json",
		// In its working directory: paths of temporary directories are too long for a socket.
		"RESQUED_CONTROL_SOCKET=control.sock",
		"NOTIFY_SOCKET=" + d.notify.path,
		"RESQUED_TEST_REDIS=" + server.URL(),
		"RESQUED_TEST_SPACE=" + d.Space,
		"RESQUED_TEST_TRACE=" + o.Trace,
	}, o.Env...)
	// A daemon must not outlive a test binary that is killed.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A job's process that holds the daemon's output open must not hang the test.
	d.cmd.WaitDelay = 5 * time.Second
	d.run()
	tb.Cleanup(d.discard)
	if !o.Unready {
		d.AwaitReady()
	}
	return d
}

// letIn gives the daemon's files to a user, and makes all directories above them accessible.
func (d *Daemon) letIn(uid int) {
	d.tb.Helper()
	err := errors.Join(
		os.Chmod(buildDir, 0o711), os.Chmod(filepath.Dir(d.Dir), 0o711), os.Chmod(d.notify.path, 0o666),
		os.Chown(d.Dir, uid, uid), os.Chown(d.ConfigFile, uid, uid))
	if err != nil {
		d.tb.Fatal(err)
	}
}

// Watch returns a Daemon for one that was started elsewhere.
func Watch(tb testing.TB, client *redis.Client, space string) *Daemon {
	tb.Helper()
	return &Daemon{Space: space, Client: client, tb: tb, mark: space, notify: &notifications{}, log: &logBuffer{}}
}

// run starts the process and waits for it on one thread, because Pdeathsig refers to the thread
// that started it.
func (d *Daemon) run() {
	d.tb.Helper()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // ProcessState has the rest
		}
		close(d.done)
	}()
	if err := <-started; err != nil {
		d.tb.Fatalf("start: %v", err)
	}
	d.PID = d.cmd.Process.Pid
	// The name includes the start time, because in another pid namespace another master may have
	// the same pid. A master that is already gone has started nothing.
	if p, ok := proctest.Look(d.PID); ok {
		d.name = fmt.Sprintf(":%d-%d:", d.PID, p.Start)
	}
}

// Configure replaces the configuration file; the daemon reads it on HUP.
func (d *Daemon) Configure(text string) {
	d.tb.Helper()
	if err := os.WriteFile(d.ConfigFile, []byte(text), 0o600); err != nil {
		d.tb.Fatal(err)
	}
}

// Touch creates an empty file in the daemon's working directory.
func (d *Daemon) Touch(name string) {
	d.tb.Helper()
	if err := os.WriteFile(filepath.Join(d.Dir, name), nil, 0o600); err != nil {
		d.tb.Fatal(err)
	}
}

// Signal sends a signal to the master.
func (d *Daemon) Signal(sig syscall.Signal) {
	d.tb.Helper()
	d.Told = time.Now()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.tb.Fatalf("send %s: %v\n%s", sig, err, d.Log())
	}
}

// Exit waits until the master has ended and returns its exit code, or minus the
// number of the signal that ended it.
func (d *Daemon) Exit() int {
	d.tb.Helper()
	select {
	case <-d.done:
	case <-time.After(patience):
		d.tb.Fatalf("the daemon has not ended within %s\n%s\n%s", patience, d.describe(), d.Log())
	}
	status, _ := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// Ended reports whether the master has ended.
func (d *Daemon) Ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// AwaitEnd waits for the master's end for at most limit and reports whether it came.
func (d *Daemon) AwaitEnd(limit time.Duration) bool {
	select {
	case <-d.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// Log returns the daemon's output so far.
func (d *Daemon) Log() string { return d.log.String() }

// AwaitLog waits until the daemon has printed a text that contains part.
func (d *Daemon) AwaitLog(part string) {
	d.tb.Helper()
	if !proctest.Within(patience, func() bool { return strings.Contains(d.Log(), part) }) {
		d.tb.Fatalf("the log does not say %q within %s\n%s", part, patience, d.Log())
	}
}

// markEnv is in the environment of the daemon and its worker processes.
const markEnv = "RESQUED_TEST_RUN"

// Processes returns every living descendant of the daemon, and the master. Commands do not
// inherit the daemon's environment; the name of their worker process contains the master's.
func (d *Daemon) Processes() []proctest.Process {
	return proctest.Find(func(p proctest.Process) bool {
		return p.PID == d.PID || p.Env(markEnv) == d.mark || d.name != "" && strings.Contains(p.Env("RESQUED_PROC"), d.name)
	})
}

// Workers returns the living worker processes.
func (d *Daemon) Workers() []proctest.Process {
	return proctest.Find(func(p proctest.Process) bool {
		return p.Parent == d.PID && strings.HasPrefix(p.Title, "resqued (resque-3): worker")
	})
}

// WorkerPIDs returns the pids of the living worker processes.
func (d *Daemon) WorkerPIDs() []int {
	var pids []int
	for _, p := range d.Workers() {
		pids = append(pids, p.PID)
	}
	return pids
}

func (d *Daemon) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "status %q\n", d.Status())
	for _, p := range d.Processes() {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// discard kills a daemon that still runs after the test. A daemon that has ended by itself must
// have left no process.
func (d *Daemon) discard() {
	if strings.Contains(d.Log(), "DATA RACE") {
		d.tb.Error("the race detector has found something")
	}
	if d.tb.Failed() {
		d.tb.Logf("%s\n%s", d.describe(), d.Log())
	}
	if d.Ended() {
		if left := d.Processes(); len(left) > 0 {
			d.tb.Errorf("processes outlive their master: %v", left)
		}
	}
	_ = d.cmd.Process.Kill()
	<-d.done
	// Worker processes may still run jobs that never end.
	gone := proctest.Within(patience, func() bool {
		left := d.Processes()
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	if !gone {
		d.tb.Errorf("processes cannot be killed: %v", d.Processes())
	}
}

// logBuffer is a buffer for concurrent writes and reads.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Run runs a verb of the stock binary in the daemon's namespace until it exits, and returns its
// standard output, its standard error and its exit code.
func (d *Daemon) Run(args ...string) (stdout, stderr string, code int) {
	d.tb.Helper()
	return d.RunWithout(nil, args...)
}

// Command returns a verb of the stock binary in the daemon's namespace, without the named
// environment variables of the daemon. The caller starts it.
func (d *Daemon) Command(ctx context.Context, names []string, args ...string) *exec.Cmd {
	d.tb.Helper()
	cmd := exec.CommandContext(ctx, Binary(d.tb), args...)
	cmd.Dir = d.Dir
	cmd.Env = slices.DeleteFunc(slices.Clone(d.cmd.Env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(names, name) || name == "NOTIFY_SOCKET"
	})
	return cmd
}

// RunWithout is Run without the named environment variables of the daemon.
func (d *Daemon) RunWithout(names []string, args ...string) (stdout, stderr string, code int) {
	d.tb.Helper()
	Binary(d.tb) // the first call builds it, outside the command's time
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := d.Command(ctx, names, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.tb.Fatalf("run %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
