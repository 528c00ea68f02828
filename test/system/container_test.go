package system_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// imageUser is the user of the image.
const imageUser = "65532"

// buildLine is the line of the Dockerfile that builds the program.
var buildLine = regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 .*go build .*) -o \S+ \./cmd/resqued$`)

// buildAsImage builds a package as the Dockerfile does.
func buildAsImage(t *testing.T, pkg string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/container/Dockerfile")
	require.NoError(t, err)
	found := buildLine.FindSubmatch(text)
	require.NotNil(t, found, "the Dockerfile builds ./cmd/resqued")
	path := filepath.Join(t.TempDir(), "resqued")
	build := exec.Command("sh", "-ec", fmt.Sprintf(`VERSION=v0.0.0-image TARGETOS= TARGETARCH=; %s -o "$0" "$1"`, found[1]), path, pkg)
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// pod is a program as the first process of namespaces of its own, as the image's user, in a
// read-only file system with a /tmp.
type pod struct {
	*harness.Daemon
	t *testing.T
	// init is its first process.
	init int
	cmd  *exec.Cmd
	out  output
	env  []string
	done chan struct{}
}

// output is what a program prints, readable while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// rootScript makes the file system and starts the program in it. $1 is an empty directory, $2
// the program, $3 its configuration, $4 the content of memory.max; the program's arguments
// follow. The file system also has what sh needs, for the commands of jobs.
const rootScript = `
root=$1 program=$2 config=$3 limit=$4; shift 4
mount -t tmpfs -o mode=755 none "$root"
mkdir -p "$root/usr/local/bin" "$root/etc/resqued" "$root/proc" "$root/tmp" "$root/dev" "$root/host" "$root/sys/fs/cgroup"
cp "$program" "$root/usr/local/bin/resqued"; cp "$config" "$root/etc/resqued/resqued.yaml"
chmod 644 "$root/etc/resqued/resqued.yaml"
[ -z "$limit" ] || echo "$limit" >"$root/sys/fs/cgroup/memory.max"
for dir in bin lib lib64 usr/bin usr/lib usr/lib64; do
	[ -d "/$dir" ] || continue
	[ ! -L "/$dir" ] || { cp -P "/$dir" "$root/$dir"; continue; }
	mkdir -p "$root/$dir"; mount --rbind "/$dir" "$root/$dir"
done
touch "$root/dev/null"; mount --bind /dev/null "$root/dev/null"
mount -o remount,ro,bind "$root"
mount -t tmpfs -o mode=1777 none "$root/tmp"
exec unshare --pid --fork --kill-child --mount-proc --root="$root" --wd=/tmp --setuid=65532 --setgid=65532 /usr/local/bin/resqued "$@"
`

// runPod starts a program with a configuration and waits until it is ready.
func runPod(t *testing.T, program, configuration, limit string) *pod {
	t.Helper()
	needsNamespaces(t, "--mount", "--pid", "--fork")
	server, space := redistest.Shared(t), redistest.Namespace(t)
	file := filepath.Join(t.TempDir(), "resqued.yaml")
	require.NoError(t, os.WriteFile(file, []byte(configuration), 0o600))
	p := &pod{Daemon: harness.Watch(t, server.Client(t), space), t: t, done: make(chan struct{})}
	p.env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "REDIS_URL=" + server.URL(), "RESQUE_NAMESPACE=" + space, "RESQUED_LOG_FORMAT=json",
		"RESQUED_TEST_REDIS=" + server.URL(), "RESQUED_TEST_SPACE=" + space,
	}
	p.cmd = exec.Command("unshare", "--mount", "--ipc", "--uts", "sh", "-ec", rootScript, "sh", t.TempDir(), program, file, limit, "work")
	p.cmd.Env = append([]string{}, p.env...)
	p.cmd.Env[0] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		if p.init != 0 {
			_ = syscall.Kill(p.init, syscall.SIGKILL)
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Log(&p.out)
		}
	})
	proctest.Await(t, patience, func() bool { return p.ended() || strings.Contains(p.out.String(), `"msg":"ready"`) }, "that it is ready")
	require.False(t, p.ended(), "%s", &p.out)
	for _, c := range proctest.Children(p.cmd.Process.Pid) {
		if c.InnerPID() == "1" {
			p.init = c.PID
		}
	}
	require.NotZero(t, p.init, "the first process of the container")
	return p
}

func (p *pod) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exec runs a program in the container, as "docker exec" and probes do.
func (p *pod) exec(argv ...string) (stdout string, code int) {
	p.t.Helper()
	cmd := exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(p.init), "--pid", "--mount", "--root", "--wd=/tmp", "--setuid", imageUser, "--setgid", imageUser,
	}, argv...)...)
	cmd.Env = append([]string{}, p.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String(), cmd.ProcessState.ExitCode()
}

// zombies are dead processes of the container that nothing has reaped.
func (p *pod) zombies() []proctest.Process {
	return proctest.Find(func(one proctest.Process) bool { return one.State == "Z" && one.Descends(p.init) })
}

// TestContainerImage: the image's program needs no other files.
func TestContainerImage(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(buildAsImage(t, "./cmd/resqued"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, part := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, part.Type, "it has no loader")
	}
}

// TestContainer runs the program of the image as a container does.
func TestContainer(t *testing.T) {
	t.Parallel()
	const jobs = `
worker_count: 2
thread_count: 2
jobs_per_fork: 100
queues: [q]
drain_timeout: 10m
handlers:
  # Leaves a process behind that has left its session, and whose parent has gone.
  Orphan: {command: [sh, -c, "setsid sh -c 'sleep 600 & exec sleep 600' >/dev/null 2>&1 & echo left"]}
  Wait: {command: [sh, -c, "echo begun >/tmp/begun; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo done"]}
`
	program := buildAsImage(t, "./cmd/resqued")

	t.Run("works jobs as its first process, in a read-only file system, without root", func(t *testing.T) {
		t.Parallel()
		p := runPod(t, program, jobs, "")
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.init))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^Uid:\s+65532\s+65532\s+65532\s+65532$`, string(status))
		require.Regexp(t, `(?m)^CapEff:\s+0+$`, string(status))
		_, code := p.exec("sh", "-c", "touch /usr/local/bin/x 2>/dev/null")
		require.NotZero(t, code, "the file system is read-only")
		require.NotContains(t, p.out.String(), `"level":"ERROR"`)
		require.NotContains(t, p.out.String(), "there is no control socket")
		var stdout string
		proctest.Await(t, patience, func() bool {
			var code int
			stdout, code = p.exec("resqued", "health")
			return code == 0 && strings.Contains(stdout, "healthy: process 1: running, 2 workers")
		}, "both workers: %s", stdout)
		stdout, code = p.exec("resqued", "health", "--alive", "--timeout", "8s")
		require.Zero(t, code, stdout)
		stdout, code = p.exec("resqued", "upgrade")
		require.NotZero(t, code, "the end of the first process would be that of the container")
		require.Contains(t, stdout, "refused")
	})

	t.Run("reaps orphans", func(t *testing.T) {
		t.Parallel()
		p := runPod(t, program, jobs, "")
		p.PushRaw("q", `{"class":"Orphan","args":[]}`, `{"class":"Orphan","args":[2]}`)
		proctest.Await(t, patience, func() bool { return p.Snapshot().Processed == 2 }, "the end of the jobs")
		// The child of a probe may outlive it; the first process adopts it.
		_, code := p.exec("sh", "-c", "(sleep 0.3 &) ; exit 0")
		require.Zero(t, code)
		proctest.Await(t, patience, func() bool {
			return len(proctest.Find(func(one proctest.Process) bool {
				return one.Descends(p.init) && one.PID != p.init && !strings.HasPrefix(one.Title, "resqued")
			})) == 0
		}, "that neither the jobs' processes nor dead ones are left: %v", p.zombies())
		stdout, code := p.exec("resqued", "health")
		require.Zero(t, code, stdout)
	})

	t.Run("drains within its grace", func(t *testing.T) {
		t.Parallel()
		p := runPod(t, program, jobs, "")
		p.PushRaw("q", `{"class":"Wait","args":[]}`)
		// Its record in Redis comes first; a job that has not begun goes back when the daemon
		// drains.
		proctest.Await(t, patience, func() bool { _, code := p.exec("test", "-s", "/tmp/begun"); return code == 0 }, "the job")
		p.PushRaw("other", `{"class":"Wait","args":[1]}`)
		stdout, code := p.exec("resqued", "drain", "--no-wait")
		require.Zero(t, code, stdout)
		require.Contains(t, stdout, "process 1 drains")
		proctest.Await(t, patience, func() bool { _, code := p.exec("resqued", "health"); return code == 3 }, "that it is not ready")
		stdout, code = p.exec("resqued", "health", "--alive")
		require.Zero(t, code, "a probe that restarts must not end the drain: "+stdout)
		go func() { p.exec("resqued", "drain") }() // the hook, which ends with the container
		_, code = p.exec("sh", "-c", ": >/tmp/go")
		require.Zero(t, code)
		<-p.done
		require.Zero(t, p.cmd.ProcessState.ExitCode(), "%s", &p.out)
		require.Empty(t, p.Failures())
		require.EqualValues(t, 1, p.Snapshot().Processed)
		require.False(t, proctest.Alive(p.init))
	})

	t.Run("goes on to its end when it is stopped with the signal of the image", func(t *testing.T) {
		t.Parallel()
		p := runPod(t, program, jobs, "")
		p.PushRaw("q", `{"class":"Wait","args":[]}`)
		// Its record in Redis comes first; a job that has not begun goes back when the daemon
		// drains.
		proctest.Await(t, patience, func() bool { _, code := p.exec("test", "-s", "/tmp/begun"); return code == 0 }, "the job")
		require.NoError(t, syscall.Kill(p.init, syscall.SIGQUIT)) // STOPSIGNAL
		proctest.Await(t, patience, func() bool { return strings.Contains(p.out.String(), `"to":"draining"`) }, "the drain")
		_, code := p.exec("sh", "-c", ": >/tmp/go")
		require.Zero(t, code)
		<-p.done
		require.Zero(t, p.cmd.ProcessState.ExitCode(), "%s", &p.out)
		require.Empty(t, p.Failures())
	})

	t.Run("sizes max_rss by what its control group allows", func(t *testing.T) {
		t.Parallel()
		// A worker process whose jobs keep memory is replaced before the kernel has to end it.
		p := runPod(t, buildAsImage(t, "./test/system/testapp"), "worker_count: 1\nthread_count: 2\njobs_per_fork: 0\nqueues: [q]\n", strconv.Itoa(320<<20))
		size := 320 << 20 / 2 / 2
		said := line(t, &p.out, "max_rss follows the memory that the control group allows")
		require.EqualValues(t, size, said["max_rss"])
		require.EqualValues(t, 320<<20, said["limit"])
		for i := range 150 {
			p.Push("q", "Leak", i)
		}
		proctest.Await(t, patience, func() bool { return p.Snapshot().Processed == 150 }, "the jobs")
		replaced := line(t, &p.out, "replacing a worker process early: its memory is above max_rss")
		require.EqualValues(t, size, replaced["max_rss"])
		require.Empty(t, p.Failures())
	})
}

// line returns the first line of a JSON log with a message, once it exists.
func line(t *testing.T, log fmt.Stringer, msg string) (fields map[string]any) {
	t.Helper()
	proctest.Await(t, patience, func() bool {
		for d := json.NewDecoder(strings.NewReader(log.String())); ; {
			fields = nil
			if err := d.Decode(&fields); err == io.EOF || err != nil {
				return false
			}
			if fields["msg"] == msg {
				return true
			}
		}
	}, "%q in the log", msg)
	return fields
}
