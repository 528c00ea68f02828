package proctest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

//go:embed systemd_container.sh
var containerScript string

// bootTimeout is far more than the second that a boot takes on an idle machine.
const bootTimeout = 60 * time.Second

// execTimeout ends a command that hangs. Installing a package has taken minutes on a busy
// machine with two processors.
const execTimeout = 10 * time.Minute

// redisUnit is the unit of the container's Redis.
const redisUnit = `[Unit]
Description=Redis of the container
[Service]
Type=notify
RuntimeDirectory=test-redis
ExecStart=%s --bind 127.0.0.1 --port 6379 --unixsocket ` + redisSocket + ` --unixsocketperm 777 --save "" --dir /run/test-redis --supervised systemd
`

const redisSocket = "/run/test-redis/redis.sock"

// SystemdContainerOptions say what a container has in addition to the machine's own programs.
type SystemdContainerOptions struct {
	// Binary is copied to /usr/local/bin under its own name.
	Binary string
	// Units are unit files, copied to /etc/systemd/system.
	Units []string
	// Files are further files by their absolute path in the container.
	Files map[string]string
	// Redis starts a redis-server on port 6379 of the container's loopback.
	Redis bool
}

// SystemdContainer is a booted systemd in namespaces of its own (processes, mounts, network,
// cgroups, host name). Its file system is a copy of the machine's; changes are lost with the
// container.
type SystemdContainer struct {
	// PID is the container's init process in the machine's pid namespace.
	PID int

	tb     testing.TB
	dir    string
	cgroup string
	log    *bytes.Buffer
	ended  chan struct{}
}

var containers atomic.Int64

// Boot starts a container and waits until systemd is up. It skips the test, with the reason, if
// that is not possible: without root, systemd, cgroup v2 or the right to create namespaces. The
// container ends with the test.
func Boot(tb testing.TB, o SystemdContainerOptions) *SystemdContainer {
	tb.Helper()
	unified := requireSystemdContainer(tb)

	// Not TempDir, whose path has the test's name: in mount options a comma is a separator.
	dir, err := os.MkdirTemp("", "resqued-systemd-")
	if err != nil {
		tb.Fatalf("systemd container: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &SystemdContainer{
		tb:     tb,
		dir:    dir,
		cgroup: filepath.Join(unified, fmt.Sprintf("resqued-systemd-%d-%d", os.Getpid(), containers.Add(1))),
		log:    &bytes.Buffer{},
		ended:  make(chan struct{}),
	}
	files := c.prepare(o)
	if err := os.Mkdir(c.cgroup, 0o755); err != nil {
		tb.Fatalf("systemd container: %v", err)
	}
	tb.Cleanup(c.end)

	cmd := exec.Command("sh", "-c", containerScript)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"CGROUP=" + c.cgroup, "DIR=" + filepath.Join(c.dir, "overlay"), "FILES=" + files,
	}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	// The container dies with the test binary, however that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its output says more than its exit code
		}
		close(c.ended)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("systemd container: %v", err)
	}

	state := ""
	up := Within(bootTimeout, func() bool {
		select {
		case <-c.ended:
			return true
		default:
		}
		if c.PID == 0 {
			if children := Children(cmd.Process.Pid); len(children) == 1 {
				c.PID = children[0].PID
			}
			return false
		}
		state, _ = c.TryExec("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
	switch {
	case !up:
		tb.Fatalf("systemd container: systemd is not up after %s (%s)", bootTimeout, state)
	case state == "degraded":
		tb.Fatalf("systemd container: systemd came up degraded:\n%s", c.Exec("systemctl", "--failed", "--no-legend", "--plain"))
	case state != "running":
		tb.Fatalf("systemd container: systemd did not start:\n%s", c.log)
	}
	if o.Redis {
		c.Systemctl("start", "test-redis")
	}
	return c
}

// RequireSystemdContainer skips the test, with the reason, if Boot would: for tests with long
// preparations.
func RequireSystemdContainer(tb testing.TB) {
	tb.Helper()
	requireSystemdContainer(tb)
}

// requireSystemdContainer skips the test if no container is possible, and returns the directory
// where cgroup v2 is mounted.
func requireSystemdContainer(tb testing.TB) string {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("no systemd container: booting systemd in a namespace needs root")
	}
	for _, program := range []string{"/lib/systemd/systemd", "unshare", "nsenter", "ip", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			tb.Skipf("no systemd container: %v", err)
		}
	}
	unified := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			unified = dir
			break
		}
	}
	if unified == "" {
		tb.Skip("no systemd container: cgroup v2 is not mounted in /sys/fs/cgroup")
	}
	try := exec.Command("unshare", "-p", "-f", "-m", "-u", "-i", "-n", "-C", "mount", "-t", "tmpfs", "try", "/mnt")
	if out, err := try.CombinedOutput(); err != nil {
		tb.Skipf("no systemd container: namespaces and mounts are not allowed here: %v: %s", err, bytes.TrimSpace(out))
	}
	return unified
}

// prepare writes the files that are copied over the container's root and returns their
// directory.
func (c *SystemdContainer) prepare(o SystemdContainerOptions) string {
	c.tb.Helper()
	root := filepath.Join(c.dir, "files")
	write := func(path string, content []byte, mode fs.FileMode) {
		c.tb.Helper()
		path = filepath.Join(root, path)
		// The umask must not hide files from services of other users.
		err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, content, mode), os.Chmod(path, mode))
		if err != nil {
			c.tb.Fatalf("systemd container: %v", err)
		}
	}
	read := func(path string) []byte {
		c.tb.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			c.tb.Fatalf("systemd container: %v", err)
		}
		return content
	}
	if err := errors.Join(os.MkdirAll(root, 0o755), os.Mkdir(filepath.Join(c.dir, "overlay"), 0o755)); err != nil {
		c.tb.Fatalf("systemd container: %v", err)
	}
	if o.Binary != "" {
		write("/usr/local/bin/"+filepath.Base(o.Binary), read(o.Binary), 0o755)
	}
	for _, unit := range o.Units {
		write("/etc/systemd/system/"+filepath.Base(unit), read(unit), 0o644)
	}
	for path, content := range o.Files {
		write(path, []byte(content), 0o644)
	}
	if o.Redis {
		server, err := exec.LookPath("redis-server")
		if err != nil {
			c.tb.Fatalf("systemd container: %v: install Debian's package redis-server", err)
		}
		write("/etc/systemd/system/test-redis.service", fmt.Appendf(nil, redisUnit, server), 0o644)
	}
	return root
}

// end kills the container and checks that nothing of it is left.
func (c *SystemdContainer) end() {
	c.tb.Helper()
	if c.tb.Failed() && c.PID != 0 && Alive(c.PID) {
		out, _ := c.TryExec("journalctl", "--no-pager", "-n", "200", "-o", "short-precise")
		c.tb.Logf("the container's journal:\n%s", out)
	}
	// Killing init kills every process of its namespace; the kernel waits for them.
	if c.PID != 0 {
		_ = syscall.Kill(c.PID, syscall.SIGKILL)
	}
	select {
	case <-c.ended:
	case <-time.After(bootTimeout):
		c.tb.Errorf("systemd container: its processes did not end:\n%s", c.log)
	}
	// Deepest first; a dead process leaves its cgroup a moment after its end.
	var err error
	gone := Within(bootTimeout, func() bool {
		err = removeCgroup(c.cgroup)
		return err == nil
	})
	if !gone {
		c.tb.Errorf("systemd container: its cgroup is left behind: %v", err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); bytes.Contains(mounts, []byte(c.dir)) {
		c.tb.Errorf("systemd container: a mount is left behind under %s", c.dir)
	}
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// Path returns the path outside the container for a file in the container.
func (c *SystemdContainer) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(c.PID), "root", path)
}

// RedisSocket returns the path outside the container of its Redis's unix socket.
func (c *SystemdContainer) RedisSocket() string { return c.Path(redisSocket) }

// TryExec runs a program in the container and returns its output without the last newline.
func (c *SystemdContainer) TryExec(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), execTimeout)
	defer cancel()
	argv = append([]string{"-t", strconv.Itoa(c.PID), "-a", "--"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", argv...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_COLORS=0"}
	out, err := cmd.CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}

// Exec is TryExec, but fails the test on an error.
func (c *SystemdContainer) Exec(argv ...string) string {
	c.tb.Helper()
	out, err := c.TryExec(argv...)
	if err != nil {
		c.tb.Fatalf("systemd container: %s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// Systemctl runs systemctl in the container and fails the test on an error.
func (c *SystemdContainer) Systemctl(args ...string) string {
	c.tb.Helper()
	return c.Exec(append([]string{"systemctl"}, args...)...)
}

// Property returns a property of a unit, for example ActiveState, MainPID or NRestarts.
func (c *SystemdContainer) Property(unit, name string) string {
	c.tb.Helper()
	return c.Systemctl("show", "--value", "--property", name, unit)
}

// MainPID returns the pid of a unit's main process in the container's pid namespace.
func (c *SystemdContainer) MainPID(unit string) int {
	c.tb.Helper()
	pid, err := strconv.Atoi(c.Property(unit, "MainPID"))
	if err != nil {
		c.tb.Fatalf("systemd container: main pid of %s: %v", unit, err)
	}
	return pid
}

// Journal returns a unit's log messages.
func (c *SystemdContainer) Journal(unit string) string {
	c.tb.Helper()
	return c.Exec("journalctl", "--no-pager", "-o", "cat", "-u", unit)
}
