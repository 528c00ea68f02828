package system_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// railsLike is a copy of examples/rails-like.
type railsLike struct {
	dir string
	// env is additional environment of the application.
	env []string
	// config is its resqued.yaml for a daemon that has another working directory.
	config string
}

// newRailsLike copies the application. Its resque is a fake of the gem.
func newRailsLike(t *testing.T, resque bool) railsLike {
	t.Helper()
	source, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	app := railsLike{dir: filepath.Join(dir, "examples/rails-like"), env: []string{"RAILS_LIKE_DATA=" + filepath.Join(dir, "data")}}
	require.NoError(t, os.CopyFS(app.dir, os.DirFS(filepath.Join(source, "examples/rails-like"))))
	require.NoError(t, os.Symlink(filepath.Join(source, "runners"), filepath.Join(dir, "runners")))
	if resque {
		standin := fmt.Sprintf("require \"json\"\nrequire %q\n", filepath.Join(source, "runners/ruby/test/apps/standin.rb"))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "lib"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lib/resque.rb"), []byte(standin), 0o600))
		app.env = append(app.env, "RUBYLIB="+filepath.Join(dir, "lib"))
	}
	text, err := os.ReadFile(filepath.Join(app.dir, "resqued.yaml"))
	require.NoError(t, err)
	config := strings.Replace(string(text), "runners:\n  app:\n", "runners:\n  app:\n    dir: "+app.dir+"\n", 1)
	// The stand-in has no connection to set.
	app.config = strings.Replace(config, "env_keep: [REDIS_URL]", "env_drop: [REDIS_URL]", 1)
	require.NotEqual(t, config, app.config)
	return app
}

// ruby runs a script in the application and returns what it prints.
func (a railsLike) ruby(t *testing.T, script string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "ruby", "-r", "./app", "-e", script)
	// An empty REDIS_URL still counts as set: the tester's own must not reach the fake.
	environ := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "REDIS_URL=") })
	c.Dir, c.Env = a.dir, append(environ, a.env...)
	out, err := c.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func (a railsLike) events(t *testing.T, number int) string {
	t.Helper()
	return a.ruby(t, fmt.Sprintf("puts Invoice.find(%d).events.join(' ')", number))
}

// TestRailsLike works the jobs of the Ruby application of the examples, as its README says, and
// deploys it while a long job runs.
func TestRailsLike(t *testing.T) {
	t.Parallel()
	for name, resque := range map[string]bool{"with hooks": true, "without the gem": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newRailsLike(t, resque)
			app.ruby(t, "(1..20).each { |number| Invoice.create(number) }")
			d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, Config: app.config, Env: app.env})
			enqueue := func(args ...string) {
				t.Helper()
				_, errs, code := d.Run(append([]string{"enqueue", "-c", d.ConfigFile}, args...)...)
				require.Zero(t, code, errs)
			}
			enqueue("SendInvoice", "1")
			enqueue("ChargeCard", "2")
			enqueue("Images::Resize", "photo.png", `{"width":300}`, "--queue", "images")
			enqueue("Missing", "1", "--queue", "low")
			d.AwaitLog("photo.png: 300 pixels wide")
			d.AwaitProcessed(4, patience)
			if resque {
				require.Equal(t, "sending mailed sent", app.events(t, 1))
				d.AwaitLog("SendInvoice[1] took")
				enqueue("SendInvoice", "1")
				d.AwaitLog("invoice 1 was sent before")
				enqueue("SendInvoice", "99") // fails before on_failure can note it
			} else {
				require.Equal(t, "mailed", app.events(t, 1))
				enqueue("SendInvoice", "99")
			}

			failures := byException(t, d.AwaitFailures(3))
			require.Equal(t, "invoice 2: the bank declines 1000 cents", failures["Card::Declined"].Error)
			require.Contains(t, failures["Card::Declined"].Backtrace[0], "app/models/card.rb:8:in ")
			require.Contains(t, failures["Card::Declined"].Backtrace[1], "app/jobs/charge_card.rb:11:in ")
			require.Equal(t, "no invoice 99", failures["Invoice::NotFound"].Error)
			require.Contains(t, failures["NameError"].Error, "uninitialized constant Missing")
			shown, _, _ := d.Run("failed", "-c", d.ConfigFile)
			require.Contains(t, shown, "Card::Declined")

			enqueue("CloseMonth", "2026-01")
			proctest.Await(t, patience, func() bool { return strings.Contains(app.events(t, 1), "closed") }, "the first invoice of the month")
			d.Signal(syscall.SIGHUP)
			d.AwaitLog("the new configuration is in force everywhere")
			proctest.Await(t, patience, func() bool { return strings.Contains(app.events(t, 20), "closed") }, "the last invoice of the month")
			closed := app.ruby(t, "puts Invoice.of('2026-01').map { |number| Invoice.find(number).events.count('closed') }.join")
			require.Equal(t, strings.Repeat("1", 20), closed, "each invoice once")
			d.Signal(syscall.SIGQUIT)
			require.Zero(t, d.Exit())
		})
	}
}

// byException returns failures by their exceptions, each of which came once.
func byException(t *testing.T, failures []harness.Failure) map[string]harness.Failure {
	t.Helper()
	all := map[string]harness.Failure{}
	for _, f := range failures {
		require.NotContains(t, all, f.Exception)
		all[f.Exception] = f
	}
	return all
}

// TestDevWithARunner works Ruby classes with the one command of the README.
func TestDevWithARunner(t *testing.T) {
	t.Parallel()
	app := newRailsLike(t, false)
	root := filepath.Dir(filepath.Dir(app.dir))
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "XDG_RUNTIME_DIR=" + root, "TMPDIR=" + root, "TERM=xterm"}, app.env...)
	f := atTerminal(t, root, env, harness.Binary(t), "dev", "--runner", "ruby runners/ruby/exe/resqued-runner examples/rails-like/app.rb")
	f.await(t, "Hello[")
	c := exec.CommandContext(t.Context(), harness.Binary(t), "enqueue", "Images::Resize", "a.png", "--queue", "images", "--dev")
	c.Dir, c.Env = root, f.env
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f.await(t, `Images::Resize["a.png"]`)
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGTERM))
	f.exit(t)
	f.nothingLeft(t)
}
