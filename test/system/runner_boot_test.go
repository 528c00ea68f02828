package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// rubyApp is an application in Ruby that a test changes while a daemon works its classes.
type rubyApp struct {
	t                    *testing.T
	name, file, noted, d string
}

// appPrelude is the start of each application: note writes a line into a file outside of Redis, and
// gate waits for a file of the test.
const appPrelude = `
NOTED = File.open(%NOTED%, File::WRONLY | File::APPEND | File::CREAT)
def note(*words) = NOTED.syswrite(words.join(" ") + "\n")
def gate(name)
  sleep(0.01) until File.exist?(File.join(%DIR%, name))
end
`

// versionOf is a class that notes which version of the application has performed a job.
func versionOf(version string) string {
	return "class Count\n  def self.perform(id)\n    note(" + strconv.Quote(version) + ", id, Process.pid)\n    sleep(0.002)\n  end\nend\n"
}

func newRubyApp(t *testing.T, name, code string) *rubyApp {
	t.Helper()
	dir := t.TempDir()
	a := &rubyApp{t: t, name: name, file: filepath.Join(dir, "code.rb"), noted: filepath.Join(dir, "noted"), d: dir}
	a.write(code)
	return a
}

// write replaces the code, in one step: a template may be reading it.
func (a *rubyApp) write(code string) {
	a.t.Helper()
	prelude := strings.NewReplacer("%NOTED%", strconv.Quote(a.noted), "%DIR%", strconv.Quote(a.d)).Replace(appPrelude)
	require.NoError(a.t, os.WriteFile(a.file+".new", []byte(prelude+code), 0o600))
	require.NoError(a.t, os.Rename(a.file+".new", a.file))
}

func (a *rubyApp) config(more string) string {
	a.t.Helper()
	return rubyRunner(a.t, a.name, "load "+strconv.Quote(a.file)+"\n", more)
}

func (a *rubyApp) open(gate string) {
	a.t.Helper()
	require.NoError(a.t, os.WriteFile(filepath.Join(a.d, gate), nil, 0o600))
}

// notes returns what has been noted that begins with that word, as fields.
func (a *rubyApp) notes(first string) (notes [][]string) {
	a.t.Helper()
	text, err := os.ReadFile(a.noted)
	if !os.IsNotExist(err) {
		require.NoError(a.t, err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == first {
			notes = append(notes, words)
		}
	}
	return notes
}

func (a *rubyApp) await(first string, n int) [][]string {
	a.t.Helper()
	proctest.Await(a.t, patience, func() bool { return len(a.notes(first)) >= n }, "%d notes of %q", n, first)
	return a.notes(first)
}

// ended checks that the daemon ends in good order and leaves nothing.
func (a *rubyApp) ended(d *harness.Daemon) {
	a.t.Helper()
	d.Signal(quit)
	require.Zero(a.t, d.Exit(), d.Log())
	require.Empty(a.t, d.Residue())
	require.Empty(a.t, kinOf(a.name))
}

// once checks that each of the jobs 1 to n has run once.
func (a *rubyApp) once(n int, versions ...string) {
	a.t.Helper()
	var ids []int
	for _, v := range versions {
		for _, words := range a.notes(v) {
			id, err := strconv.Atoi(words[1])
			require.NoError(a.t, err)
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	require.Equal(a.t, harness.Range(1, n), ids)
}

func TestRunnerThatDoesNotBoot(t *testing.T) {
	t.Parallel()
	const broken = "warn 'what the app says'\nraise 'no database here'\n"
	t.Run("where it performs all", func(t *testing.T) {
		t.Parallel()
		a := newRubyApp(t, "unbootable", broken)
		d := harness.Start(t, harness.Options{Unready: true, Config: a.config("")})
		d.Push("q", "Count", 1)
		require.Equal(t, 78, d.Exit(), d.Log())
		for _, part := range []string{"exe/resqued-runner", "exit code 1", "what the app says", "no database here"} {
			d.AwaitLog(part)
		}
		require.Equal(t, int64(1), d.Snapshot().Queued)
		require.Empty(t, kinOf("unbootable"))
	})
	t.Run("but its template does", func(t *testing.T) {
		t.Parallel()
		standin, err := filepath.Abs("../../runners/ruby/test/apps/standin.rb")
		require.NoError(t, err)
		a := newRubyApp(t, "unforked", fmt.Sprintf("require %q\nResque.after_fork { raise 'no session here' }\n", standin))
		d := harness.Start(t, harness.Options{Unready: true, Config: a.config("    boot_timeout: 1h\n")})
		d.AwaitLog("a runner could not be started; trying again")
		d.AwaitLog("no session here")
		d.Signal(quit)
		require.Zero(t, d.Exit(), d.Log())
		require.Empty(t, d.Residue())
		require.Empty(t, kinOf("unforked"))
	})
	t.Run("beside other handlers", func(t *testing.T) {
		t.Parallel()
		a := newRubyApp(t, "halfboot", broken)
		d := harness.Start(t, harness.Options{Config: a.config("") + "  Other: {command: ['true']}\n"})
		d.Push("q", "Other", 1, 2)
		d.AwaitProcessed(2, patience)
		d.AwaitStatus("runner halfboot does not boot: exit code 1")
		d.AwaitLog("no database here")
		out, _, code := d.Run("health", "--socket", "control.sock")
		require.Equal(t, 3, code, out)
		require.Contains(t, out, "unhealthy")
		d.Push("q", "Count", 1)
		a.write(versionOf("mended"))
		a.await("mended", 1)
		d.AwaitProcessed(3, patience)
		proctest.Await(t, patience, func() bool { return !strings.Contains(d.Status(), "halfboot") }, "a status without the trouble")
		require.Empty(t, d.Failures())
		a.ended(d)
	})
	t.Run("in a new version, beside other handlers", func(t *testing.T) {
		t.Parallel()
		a := newRubyApp(t, "upgraded", strings.ReplaceAll(versionOf("old"), "Count", "OfRuby"))
		d := deploy(t, harness.Options{Config: a.config("")}) // its program has classes of its own
		proctest.Await(t, patience, func() bool { _, code := d.ask("health"); return code == 0 }, "its runner")
		a.write(broken)
		d.install(harness.NextApp(t))
		text, code := d.ask("reload")
		require.Equal(t, 1, code, text)
		require.Contains(t, text, "no database here")
		d.Push("q", "OfRuby", 1)
		a.await("old", 1)
		d.Signal(quit)
		require.Zero(t, d.Exit())
	})
}

func TestRunnerThatBootsForAWhile(t *testing.T) {
	t.Parallel()
	booting := func(t *testing.T, name string) (*rubyApp, *harness.Daemon) {
		t.Helper()
		a := newRubyApp(t, name, "note('boots', Process.pid)\ngate('boot')\n"+versionOf("ran"))
		d := harness.Start(t, harness.Options{Unready: true, Config: a.config("")})
		d.Push("q", "Count", 1, 2, 3)
		a.await("boots", 1)
		d.AwaitStatus("booting runner " + name)
		require.Equal(t, int64(3), d.Snapshot().Queued)
		return a, d
	}
	for name, sig := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "QUIT": quit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, d := booting(t, "boots-"+strings.ToLower(name))
			d.Signal(sig)
			require.Zero(t, d.Exit(), d.Log())
			require.Equal(t, int64(3), d.Snapshot().Queued)
			require.Empty(t, d.Residue())
			require.Empty(t, kinOf(a.name))
			pid, _ := strconv.Atoi(a.notes("boots")[0][1])
			require.False(t, proctest.Alive(pid))
		})
	}
	t.Run("HUP", func(t *testing.T) {
		t.Parallel()
		a, d := booting(t, "boots-hup")
		d.Signal(hup)
		d.AwaitLog("HUP")
		a.open("boot")
		d.AwaitReady()
		a.await("boots", 2) // the reload boots another
		d.AwaitProcessed(3, patience)
		a.once(3, "ran")
		first, _ := strconv.Atoi(a.notes("boots")[0][1])
		proctest.Await(t, patience, func() bool { return !proctest.Alive(first) }, "the end of the first template")
		a.ended(d)
	})
}

// TestRunnerReloadOvertaken ends the daemon while the template of a reload boots.
func TestRunnerReloadOvertaken(t *testing.T) {
	t.Parallel()
	a := newRubyApp(t, "overtaken", versionOf("ran"))
	d := harness.Start(t, harness.Options{Config: a.config("")})
	a.write("trap('TERM', 'IGNORE')\nnote('boots', Process.pid)\ngate('never')\n")
	d.Signal(hup)
	pid, err := strconv.Atoi(a.await("boots", 1)[0][1])
	require.NoError(t, err)
	a.ended(d)
	require.False(t, proctest.Alive(pid), "the template of the reload is left")
}

func TestRunnerReload(t *testing.T) {
	t.Parallel()
	a := newRubyApp(t, "reloaded", versionOf("old"))
	d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, Config: a.config("")})
	next, total := 1, 0
	push := func(n int) {
		t.Helper()
		d.Push("q", "Count", harness.Range(next, next+n-1)...)
		next, total = next+n, total+n
	}
	push(300)
	a.await("old", 20)
	before := kinOf("reloaded")
	require.Len(t, before.templates, 1)

	// While a template boots, the old code still works.
	a.write("note('boots')\ngate('boot')\n" + versionOf("new"))
	d.Signal(hup)
	a.await("boots", 1)
	had := len(a.notes("old"))
	push(100)
	a.await("old", min(had+100, 400))
	require.Empty(t, a.notes("new"))
	push(400)
	a.open("boot")
	a.await("new", 100)
	d.AwaitProcessed(int64(total), patience)
	a.once(total, "old", "new")
	proctest.Await(t, patience, func() bool {
		k := kinOf("reloaded")
		return len(k.templates) == 1 && len(k.runners) == 4 && !slices.ContainsFunc(append(before.templates, before.runners...), proctest.Alive)
	}, "the end of the old template and its runners")

	// If it does not boot, the previous one stays.
	now := kinOf("reloaded").templates
	a.write("raise 'a broken release'\n")
	out, errs, code := d.Run("reload")
	require.NotZero(t, code, out)
	require.Contains(t, out+errs, "a broken release")
	d.AwaitStatus("reload refused")
	d.AwaitLog("the old one stays")
	push(50)
	d.AwaitProcessed(int64(total), patience)
	a.once(total, "old", "new")
	require.Equal(t, now, kinOf("reloaded").templates)

	a.write(versionOf("mended"))
	out, errs, code = d.Run("reload")
	require.Zero(t, code, out+errs)
	proctest.Await(t, patience, func() bool { return !strings.Contains(d.Status(), "refused") }, "a status without the refusal")
	proctest.Await(t, patience, func() bool { return !slices.ContainsFunc(now, proctest.Alive) }, "the end of the template before")
	push(50)
	d.AwaitProcessed(int64(total), patience)
	require.Len(t, a.notes("mended"), 50)
	a.once(total, "old", "new", "mended")
	require.Empty(t, d.Failures())
	a.ended(d)
}

func TestRunnerTemplateDies(t *testing.T) {
	t.Parallel()
	a := newRubyApp(t, "orphaned", versionOf("first"))
	d := harness.Start(t, harness.Options{Threads: 2, Config: a.config("")})
	kill := func() (pid int, runners []int) {
		t.Helper()
		proctest.Await(t, patience, func() bool { k := kinOf("orphaned"); return len(k.templates) == 1 && len(k.runners) == 2 }, "a template and its runners")
		k := kinOf("orphaned")
		require.NoError(t, syscall.Kill(k.templates[0], syscall.SIGKILL))
		proctest.Await(t, patience, func() bool { return !proctest.Alive(k.templates[0]) }, "the end of the template")
		return k.templates[0], k.runners
	}
	_, runners := kill()
	d.Push("q", "Count", harness.Range(1, 20)...)
	d.AwaitProcessed(20, patience)
	for _, words := range a.notes("first") {
		pid, _ := strconv.Atoi(words[2])
		require.Contains(t, runners, pid, "its runners go on without it")
	}

	// Its application is broken by now.
	proctest.Await(t, patience, func() bool { return len(kinOf("orphaned").templates) == 1 }, "a new template")
	a.write("raise 'broken since'\n")
	_, runners = kill()
	d.AwaitStatus("runner orphaned does not boot")
	d.AwaitLog("broken since")
	d.Push("q", "Count", harness.Range(21, 40)...)
	d.AwaitProcessed(40, patience)
	a.once(40, "first")

	// If a runner dies now, the next is forked when the application works again; its job waits.
	for _, pid := range runners {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	d.Push("q", "Count", harness.Range(41, 50)...)
	a.write(versionOf("second"))
	d.AwaitProcessed(50, patience)
	require.Len(t, a.notes("second"), 10)
	a.once(50, "first", "second")
	require.Empty(t, d.Failures())
	proctest.Await(t, patience, func() bool { return !strings.Contains(d.Status(), "orphaned") }, "a status without the trouble")
	a.ended(d)
}

// TestRunnerOfAJob looks at a job that runs: jobs show and workers show name its process.
func TestRunnerOfAJob(t *testing.T) {
	t.Parallel()
	a := newRubyApp(t, "seen", "class Long; def self.perform(*); note('runs', Process.pid); gate('open'); end; end\n")
	d := harness.Start(t, harness.Options{Config: a.config("")})
	d.PushRaw("q", `{"class":"Long","args":[],"id":"one"}`)
	pid := a.await("runs", 1)[0][1]
	// Each beat of the worker process reports its runners.
	proctest.Await(t, patience, func() bool {
		out, _, _ := d.Run("jobs", "show", "one")
		return strings.Contains(out, "runner   "+a.name+", pid "+pid)
	}, "the job's runner")
	out, errs, code := d.Run("workers", "show")
	require.Zero(t, code, errs)
	require.Regexp(t, "template "+a.name+"  ready", out)
	require.Regexp(t, "runner "+a.name+`  `+pid+`  busy`, out)
	a.open("open")
	d.AwaitProcessed(1, patience)
	a.ended(d)
}
