package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// patience is long because go builds programs in that time, perhaps from nothing on a busy
// machine.
const patience = 20 * time.Minute

// terminal is a program that runs until it is interrupted, and what it has printed.
type terminal struct {
	cmd   *exec.Cmd
	ended chan struct{}
	mu    sync.Mutex
	text  bytes.Buffer
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *terminal) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// open starts a command in the background, in a process group of its own.
func open(t *testing.T, dir string, env []string, command string) *terminal {
	t.Helper()
	s := &terminal{cmd: exec.Command("sh", "-c", command), ended: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = dir, env, s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.WaitDelay = time.Second
	require.NoError(t, s.cmd.Start(), command)
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-s.ended: // another process may have its number
		default:
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-s.ended
		}
		if t.Failed() {
			t.Log(command, "\n", s)
		}
	})
	return s
}

// await waits until the terminal has a line like the one given.
func (s *terminal) await(t *testing.T, line string) {
	t.Helper()
	pattern := fits(line)
	proctest.Await(t, patience, func() bool {
		select {
		case <-s.ended:
			require.Regexp(t, pattern, s, "it has ended")
			return true
		default:
			return pattern.MatchString(s.String())
		}
	}, "%q on the screen", line)
}

// interrupt presses ^C and waits for the end.
func (s *terminal) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT))
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// steps are those of README.md and docs/locker.md, by name.
func steps(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, b := range of(t, "walk") {
		require.NotContains(t, all, b.arg, "%s", b)
		all[b.arg] = b.text
	}
	return all
}

// line returns the only line of a step with this beginning, without its comment.
func line(t *testing.T, step, start string) string {
	t.Helper()
	found := ""
	for l := range strings.Lines(step) {
		if strings.HasPrefix(l, start) {
			require.Empty(t, found, "two lines begin with %q", start)
			found, _, _ = strings.Cut(strings.TrimSpace(l), "  #")
		}
	}
	require.NotEmpty(t, found, "no line begins with %q:\n%s", start, step)
	return strings.TrimSpace(found)
}

// TestReadme follows the README like a new user, from the first command on, in an empty folder.
// Each block of a walk is pasted unchanged; exceptions say so.
func TestReadme(t *testing.T) {
	t.Parallel()
	testlevel.Long(t)
	text := steps(t)
	var mu sync.Mutex
	walked := map[string]bool{}
	step := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		require.Contains(t, text, name, "no such step")
		walked[name] = true
		return text[name]
	}
	goEnv := []string{"GOPROXY=off", "GOWORK=off"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		goEnv = append(goEnv, name+"="+strings.TrimSpace(string(value)))
	}

	t.Run("the first look", func(t *testing.T) {
		t.Parallel()
		env := append(environment(t, t.TempDir()), goEnv...)
		// "make test" is what runs this.
		require.Len(t, statements(step("dev")), 2)
		line(t, text["dev"], "make test")
		dev := open(t, root, env, "exec "+line(t, text["dev"], "go run"))
		dev.await(t, "try …")
		hello := strings.TrimSpace(step("hello"))
		stdout, stderr, code := run(t, root, env, hello)
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.NotContains(t, stderr, "warning")
		dev.await(t, `done Hello["you"] 1ms`)
		for shown := range strings.Lines(step("screen")) {
			if word, _, _ := strings.Cut(shown, " "); word == "failed" {
				// A random number decides that.
				for range 40 {
					_, stderr, code := run(t, root, env, "resqued enqueue Flaky 2 --dev")
					require.Zero(t, code, stderr)
					if fits(shown).MatchString(dev.String()) {
						break
					}
				}
			}
			if strings.HasPrefix(shown, "try ") {
				shown = strings.TrimSpace(shown) + "…" // the namespace of this test
			}
			dev.await(t, shown)
		}
		dev.interrupt(t)
	})

	t.Run("a command", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		env := environment(t, dir)
		write(t, filepath.Join(dir, "resqued.yaml"), step("resqued.yaml"))
		write(t, filepath.Join(dir, "mail.py"), step("mail.py"))
		commands := step("work")
		require.Len(t, statements(commands), 2)
		work := open(t, dir, env, "exec "+line(t, commands, "resqued work"))
		work.await(t, "…ready…queues…mail…")
		enqueue := line(t, commands, "resqued enqueue")
		stdout, stderr, code := run(t, dir, env, enqueue)
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Regexp(t, `^enqueued Mail\[42,"hello"\] to mail `, stdout)
		require.NotContains(t, stderr, "warning")
		work.await(t, "…writing to 42…")
		work.interrupt(t)

		// The same with dev, following its own hint, with arguments.
		dev := open(t, dir, env, "exec resqued dev --no-demo")
		dev.await(t, "try resqued enqueue Mail ARG… --dev…")
		stdout, stderr, code = run(t, dir, env, enqueue+" --dev")
		require.Zero(t, code, "%s%s", stdout, stderr)
		dev.await(t, `done Mail[42,"hello"] 1ms`)
		dev.interrupt(t)
	})

	t.Run("in Go", func(t *testing.T) {
		t.Parallel()
		dir := newModule(t, "mailer") // for "go mod init" and "go get", with this version of resqued
		env := append(environment(t, t.TempDir()), goEnv...)
		write(t, filepath.Join(dir, "main.go"), step("main.go"))
		commands := step("go")
		require.Len(t, statements(commands), 4)
		require.Equal(t, "go mod init mailer", line(t, commands, "go mod"))
		require.Equal(t, "go get "+module, line(t, commands, "go get"))
		start := line(t, commands, "go build")
		dev := open(t, dir, env, start)
		dev.await(t, "try mailer enqueue Mail ARG… --dev…")
		stdout, stderr, code := run(t, dir, env, line(t, commands, "./mailer enqueue"))
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Regexp(t, `^enqueued Mail\[42,"hello"\] to mail `, stdout)
		dev.await(t, `done Mail[42,"hello"] 1ms`)
		dev.interrupt(t)

		// "or ./mailer work": the queue of the class is worked.
		work := open(t, dir, env, "exec ./mailer work")
		work.await(t, "…ready…mail…")
		_, stderr, code = run(t, dir, env, "./mailer enqueue Mail 43 hello")
		require.Zero(t, code, stderr)
		work.await(t, "…writing to 43…")
		work.interrupt(t)

		stdout, stderr, code = run(t, dir, env, "go vet .")
		require.Zero(t, code, "%s%s", stdout, stderr)
	})

	t.Run("the locker", func(t *testing.T) {
		t.Parallel()
		commands := step("locker")
		dir := t.TempDir()
		require.Contains(t, line(t, commands, "export"), "export DATABASE_URL=")
		env := append(environment(t, dir), "DATABASE_URL="+database.URL(pgtest.Superuser))
		write(t, filepath.Join(dir, "check-feeds"), "#!/bin/sh\necho checked\n")
		require.NoError(t, os.Chmod(filepath.Join(dir, "check-feeds"), 0o700))
		stdout, stderr, code := run(t, dir, env, line(t, commands, "resqued locker migrate")+" && "+line(t, commands, "resqued locker run feeds --blocking"))
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, "checked")
	})

	t.Cleanup(func() { // all have run
		for name := range text {
			assert.True(t, walked[name], "no test takes the step %q", name)
		}
	})
}
