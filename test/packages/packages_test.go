// Package packages_test installs, upgrades and removes the packages for Debian and Fedora under
// a real systemd. It builds them, which takes a while: make package-test runs it, and .ci/run
// runs the half for Debian.
package packages_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

const (
	// wanted is the variable that selects the packages: deb, rpm, or 1 for both.
	wanted   = "RESQUED_TEST_PACKAGES"
	patience = 60 * time.Second
	first    = "1.0.0"
	second   = "1.0.1"
	unit     = "resqued.service"
	instance = "resqued@mail.service"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "resqued-packages-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// folder has the built packages.
var folder string

// build makes the packages of two versions, once.
var build = sync.OnceValue(func() error {
	// They are made of the whole repository, by programs. go test must notice that, or it would
	// repeat an old result.
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, d.Name()) {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, version := range []string{first, second} {
		cmd := exec.Command("sh", "../../scripts/release", "packages")
		cmd.Env = append(os.Environ(), "VERSION="+version, "TARGETS=linux/"+runtime.GOARCH, "OUT="+filepath.Join(folder, version))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
})

// repositories makes those of the packages, signed, once.
var repositories = sync.OnceValue(func() error {
	if err := build(); err != nil {
		return err
	}
	keys := filepath.Join(folder, "keys")
	script := `set -e
mkdir -m 700 "$GNUPGHOME"
trap 'gpgconf --kill all' EXIT
gpg --batch --quiet --passphrase '' --quick-generate-key releases@resqued.test
ln */resqued_*.deb */resqued_*.rpm .
SIGN_KEY=releases@resqued.test sh "$SCRIPT" .`
	path, err := filepath.Abs("../../scripts/repositories")
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GNUPGHOME="+keys, "SCRIPT="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// job is the handlers' job: it notes in Redis that it ran, and where. A gated job notes that it
// has started, and waits.
const job = `#!/bin/sh
set -e
id=$(sed 's/.*"args":\[\([0-9]*\).*/\1/')
if [ "$1" = gate ]; then
	redis-cli HINCRBY resque:test:started "$id" 1 >/dev/null
	while [ "$(redis-cli EXISTS resque:test:open)" != 1 ]; do sleep 0.05; done
fi
redis-cli >/dev/null <<END
HINCRBY resque:test:ran $id 1
HINCRBY resque:test:ran-by $RESQUED_PROC 1
END
`

const settings = `worker_count: 2
thread_count: 4
jobs_per_fork: 0
handlers:
  Note: {command: [/usr/local/bin/job], queue: %[1]s}
  Gate: {command: [/usr/local/bin/job, gate], queue: %[1]s-long}
`

// machine is a container with a Redis, on which packages are installed.
type machine struct {
	*proctest.SystemdContainer
	jobs *harness.Daemon
}

// aptList names the repository of a container, and yumRepo the other one.
const (
	aptList = "deb [signed-by=/srv/apt/resqued.asc] file:/srv/apt stable main\n"
	yumRepo = "[resqued]\nname=resqued\nbaseurl=file:///srv/yum\ngpgkey=file:///srv/yum/resqued.asc\nrepo_gpgcheck=1\ngpgcheck=0\n"
)

// newMachine boots one that has the repositories with the packages of both versions in /srv. It
// skips the test where packages are not wanted, or their installer or a container is missing.
func newMachine(t *testing.T, kind, installer string) *machine {
	t.Helper()
	if which := os.Getenv(wanted); which != "1" && which != kind {
		t.Skipf("builds packages, which takes a while: make package-test runs it, or %s=%s", wanted, kind)
	}
	if _, err := exec.LookPath(installer); err != nil {
		t.Skipf("no packages of this kind: %v", err)
	}
	proctest.RequireSystemdContainer(t)
	require.NoError(t, repositories())
	c := proctest.Boot(t, proctest.SystemdContainerOptions{Files: map[string]string{"/etc/apt/resqued.list": aptList, "/etc/yum.repos.d/resqued.repo": yumRepo}, Redis: true})
	for _, name := range []string{"apt", "yum"} {
		require.NoError(t, os.CopyFS(c.Path("/srv/"+name), os.DirFS(filepath.Join(folder, name))))
	}
	proctest.WriteProgram(t, c.Path("/usr/local/bin/job"), []byte(job))
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: c.RedisSocket(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return &machine{SystemdContainer: c, jobs: harness.Watch(t, client, "resque")}
}

// write puts a text into a file of the container.
func (m *machine) write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(m.Path(path), []byte(text), 0o644))
}

// apt runs apt-get with the container's own repository only, and without the triggers of other
// packages: man-db would index all pages of the machine each time.
func (m *machine) apt(args ...string) []string {
	return append([]string{
		"apt-get", "-q", "-y", "-o", "Dir::Etc::SourceList=/etc/apt/resqued.list", "-o", "Dir::Etc::SourceParts=-", "-o", "DPkg::Options::=--no-triggers",
	}, args...)
}

// rpm is the path of a version's package.
func rpm(version string) string {
	return "/srv/yum/resqued_" + version + "_" + runtime.GOARCH + ".rpm"
}

func (m *machine) exists(path string) bool {
	_, err := os.Lstat(m.Path(path))
	return err == nil
}

// isThere reports whether a process of the container lives, by its pid there.
func (m *machine) isThere(pid int) bool { return m.exists("/proc/" + strconv.Itoa(pid)) }

// workedBy counts the jobs that worker processes of a master have ended.
func (m *machine) workedBy(pid int) (n int) {
	for name, jobs := range m.jobs.Noted("ran-by") {
		if strings.Contains(name, ":"+strconv.Itoa(pid)+"-") {
			count, _ := strconv.Atoi(jobs)
			n += count
		}
	}
	return n
}

// load pushes jobs until stopped, and returns their number. The end of the test stops it, too.
func (m *machine) load(t *testing.T, queue string, from int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	pushed, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			// A slow machine must not get more jobs than it can work.
			if m.jobs.Client.LLen(ctx, m.jobs.Key("queue:"+queue)).Val() < 50 && ctx.Err() == nil {
				m.jobs.Push(queue, "Note", from+pushed)
				pushed++
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	stop = func() int { cancel(); <-ended; return pushed }
	t.Cleanup(func() { stop() })
	return stop
}

// onlyOnce requires that all jobs have run, each once, and none has failed.
func (m *machine) onlyOnce(t *testing.T, jobs int) {
	t.Helper()
	m.jobs.AwaitNoted("ran", jobs)
	ran := m.jobs.Noted("ran")
	require.Len(t, ran, jobs)
	for id, times := range ran {
		require.Equal(t, "1", times, "job %s", id)
	}
	for id, times := range m.jobs.Noted("started") {
		require.Equal(t, "1", times, "job %s", id)
	}
	require.Empty(t, m.jobs.Failures())
}

// start makes both services work at least one job each.
func (m *machine) start(t *testing.T) {
	t.Helper()
	m.write(t, "/etc/resqued/resqued.yaml", fmt.Sprintf(settings, "default"))
	m.write(t, "/etc/resqued/mail.yaml", fmt.Sprintf(settings, "mail"))
	m.Exec("mkdir", "-p", "/etc/systemd/system/resqued@.service.d")
	m.write(t, "/etc/systemd/system/resqued@.service.d/own.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/resqued work --config /etc/resqued/%i.yaml\n")
	m.Systemctl("daemon-reload")
	m.Systemctl("enable", "--quiet", "--now", unit, instance)
	m.jobs.Push("default", "Note", 1)
	m.jobs.Push("mail", "Note", 2)
	m.jobs.AwaitNoted("ran", 2)
}

// upgrade installs the second version while jobs are pushed and a long one runs in each service.
// No job may be lost, repeated or failed, and both versions must have worked.
func (m *machine) upgrade(t *testing.T, install ...string) {
	t.Helper()
	m.jobs.Push("default-long", "Gate", 11)
	m.jobs.Push("mail-long", "Gate", 12)
	m.jobs.AwaitNoted("started", 2)
	m.Systemctl("start", "resqued-web.socket", "resqued-web.service")
	old := map[string]int{unit: m.MainPID(unit), instance: m.MainPID(instance)}
	web := m.MainPID("resqued-web.service")
	stop := m.load(t, "default", 1000)
	stopMail := m.load(t, "mail", 1_000_000)
	m.jobs.AwaitNoted("ran", 50)

	out := m.Exec(install...)
	require.NotContains(t, out, "resqued:", "it says nothing where nothing is wrong")
	require.Equal(t, second+" linux/"+runtime.GOARCH, m.Exec("resqued", "version"))
	for name, pid := range old {
		require.Equal(t, "active", m.Property(name, "ActiveState"))
		require.NotEqual(t, pid, m.MainPID(name), "%s has not changed to the new program\n%s", name, m.Journal(name))
		require.True(t, m.isThere(pid), "the old version has the long job in hand")
		require.Equal(t, "0", m.Property(name, "NRestarts"))
		main := m.MainPID(name)
		proctest.Await(t, patience, func() bool { return m.workedBy(main) > 0 }, "a job of the new version of %s", name)
	}
	require.NotEqual(t, web, m.MainPID("resqued-web.service"))
	require.Equal(t, "active", m.Property("resqued-web.service", "ActiveState"))
	require.Equal(t, "active", m.Property("resqued-web.socket", "ActiveState"))

	ran := m.jobs.Noted("ran")
	require.Empty(t, ran["11"]+ran["12"], "the long jobs go on")
	m.jobs.Open()
	total := 4 + stop() + stopMail()
	m.onlyOnce(t, total)
	for _, pid := range old {
		proctest.Await(t, patience, func() bool { return !m.isThere(pid) }, "the end of the old version")
	}
	t.Logf("%d jobs during the upgrade, none lost, repeated or failed", total)
}

// remove removes the package while a job runs, and requires that it waits for the job.
func (m *machine) remove(t *testing.T, argv ...string) {
	t.Helper()
	m.jobs.Shut()
	ran := len(m.jobs.Noted("ran"))
	m.jobs.Push("default-long", "Gate", 21)
	m.jobs.AwaitNoted("started", 3)
	type result struct {
		out string
		err error
	}
	removed := make(chan result, 1)
	go func() {
		out, err := m.TryExec(argv...)
		removed <- result{out, err}
	}()
	proctest.Await(t, patience, func() bool { return strings.Contains(m.Property(unit, "StatusText"), "draining") }, "the drain")
	require.True(t, m.exists("/usr/bin/resqued"), "the program is there as long as its jobs run")
	m.jobs.Open()
	r := <-removed
	require.NoError(t, r.err, r.out)
	require.Contains(t, r.out, "resqued: waiting for the jobs in hand of "+unit+" "+instance)
	m.onlyOnce(t, ran+1)
	require.Empty(t, m.jobs.Residue())
	require.False(t, m.exists("/usr/bin/resqued"))
	require.False(t, m.exists("/etc/systemd/system/multi-user.target.wants/resqued.service"))
	require.Empty(t, m.Systemctl("list-units", "--state=active,failed", "--plain", "--no-legend", "resqued*"))
	require.True(t, m.exists("/etc/resqued/resqued.yaml") || m.exists("/etc/resqued/resqued.yaml.rpmsave"), "the configuration stays")
}

func TestDebian(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "deb", "dpkg")
	m.Exec(m.apt("update")...)
	out := m.Exec(m.apt("install", "resqued="+first)...)
	require.NotContains(t, out, "resqued:")
	require.Equal(t, "disabled", m.Property(unit, "UnitFileState"))
	require.Equal(t, "inactive", m.Property(unit, "ActiveState"), "nothing starts before its queues are set")
	require.Equal(t, "/etc/resqued/resqued.yaml", strings.Fields(m.Exec("dpkg-query", "--show", "--showformat=${Conffiles}", "resqued"))[0])
	require.Equal(t, "640:root:resqued", m.Exec("stat", "-c", "%a:%U:%G", "/etc/resqued/resqued.yaml"), "it may hold a password")
	require.Contains(t, m.Exec("getent", "passwd", "resqued"), "/var/lib/resqued")
	require.Contains(t, m.Exec("bash", "--norc", "-c", "source /usr/share/bash-completion/completions/resqued; complete -p resqued"), "__start_resqued")
	// The shipped configuration is harmless, and says what is missing.
	out, err := m.TryExec("systemctl", "start", unit)
	require.Error(t, err, out)
	require.Contains(t, m.Journal(unit), "queues")
	require.Contains(t, m.Exec("resqued", "version", "-o", "json"), `"version":"`+first+`"`)

	m.start(t)
	require.Equal(t, m.Exec("id", "-u", "resqued"), m.Exec("stat", "-c", "%u", "/proc/"+strconv.Itoa(m.MainPID(unit))))
	m.upgrade(t, m.apt("install", "resqued")...)
	require.Contains(t, m.Exec("cat", "/etc/resqued/resqued.yaml"), "Gate", "what was edited stays")

	// Again, and the script alone: nothing unnecessary happens.
	before := m.MainPID(unit)
	m.Exec("/var/lib/dpkg/info/resqued.postinst", "abort-upgrade", first)
	require.Equal(t, before, m.MainPID(unit))

	// A program that refuses the configuration does not stop the running one.
	m.write(t, "/etc/resqued/resqued.yaml", "worker_cuont: 2\n")
	out = m.Exec(m.apt("install", "--allow-downgrades", "resqued="+first)...)
	require.Contains(t, out, "resqued: "+unit+" goes on with the program that it had")
	require.NotContains(t, out, "resqued: "+instance)
	require.Equal(t, before, m.MainPID(unit))
	require.Equal(t, "active", m.Property(unit, "ActiveState"))
	m.write(t, "/etc/resqued/resqued.yaml", fmt.Sprintf(settings, "default"))
	m.Systemctl("reload", unit)
	require.NotEqual(t, before, m.MainPID(unit))

	m.write(t, "/etc/credstore/resqued.redis-password", "secret")
	require.True(t, m.exists("/var/lib/private/resqued-mail"))
	m.remove(t, m.apt("remove", "resqued")...)
	require.Contains(t, m.Exec("getent", "passwd", "resqued"), "resqued")
	m.Exec(m.apt("purge", "resqued")...)
	for _, path := range []string{
		"/etc/resqued", "/etc/credstore/resqued.redis-password", "/var/lib/resqued", "/var/lib/resqued-mail",
		"/var/lib/private/resqued", "/var/lib/private/resqued-mail", "/usr/lib/systemd/system/resqued.service",
	} {
		require.False(t, m.exists(path), path)
	}
	_, err = m.TryExec("getent", "passwd", "resqued")
	require.Error(t, err)
	out, _ = m.TryExec("systemctl", "list-unit-files", "--plain", "--no-legend", "resqued*")
	require.Empty(t, out)
	_, err = m.TryExec("dpkg-query", "--show", "resqued")
	require.Error(t, err)
}

func TestFedora(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "rpm", "rpm")
	m.Exec("dnf", "-q", "-y", "--disablerepo=*", "--releasever=1", "--enablerepo=resqued", "makecache")
	require.Equal(t, first+"\n"+second, m.Exec("dnf", "-q", "--cacheonly", "--disablerepo=*", "--releasever=1", "--enablerepo=resqued", "repoquery", "--queryformat", "%{version}", "resqued"))
	// The container is not Fedora: its rpm knows of no other package.
	out := m.Exec("rpm", "--install", "--nodeps", rpm(first))
	require.NotContains(t, out, "resqued:")
	require.Equal(t, "inactive", m.Property(unit, "ActiveState"))
	require.Equal(t, "/etc/resqued/resqued.yaml", m.Exec("rpm", "--query", "--configfiles", "resqued"))
	require.Equal(t, "640:root:resqued", m.Exec("stat", "-c", "%a:%U:%G", "/etc/resqued/resqued.yaml"), "it may hold a password")
	require.Contains(t, m.Exec("rpm", "--query", "--licensefiles", "resqued"), "LICENSE")
	m.start(t)
	m.upgrade(t, "rpm", "--upgrade", "--nodeps", rpm(second))
	m.remove(t, "rpm", "--erase", "resqued")
	require.True(t, m.exists("/etc/resqued/resqued.yaml.rpmsave"))
}

// TestLintian: deviations from Debian's policy are in deploy/package/lintian-overrides, with
// their reason.
func TestLintian(t *testing.T) {
	t.Parallel()
	if which := os.Getenv(wanted); which != "1" && which != "deb" {
		t.Skip("builds packages, which takes a while")
	}
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip(err)
	}
	require.NoError(t, build())
	out, err := exec.Command("lintian", "--fail-on", "error,warning", filepath.Join(folder, first, "resqued_"+first+"_"+runtime.GOARCH+".deb")).Output()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}

// Without a running systemd, or without systemd, the scripts do nothing and print nothing.
func TestScriptsWithoutSystemd(t *testing.T) {
	t.Parallel()
	for _, call := range [][]string{
		{"postinstall", "configure"},
		{"postinstall", "configure", first},
		{"postinstall", "1"},
		{"postinstall", "2"},
		{"preremove", "remove"},
		{"preremove", "upgrade", second},
		{"preremove", "0"},
		{"preremove", "1"},
		{"postremove", "remove"},
		{"postremove", "upgrade"},
		{"postremove", "0"},
	} {
		cmd := exec.Command("/bin/sh", append([]string{"../../deploy/package/" + call[0]}, call[1:]...)...)
		cmd.Env = []string{"PATH=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", call, out)
		require.Empty(t, string(out), "%v", call)
	}
}
