//go:build linux

package template

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// soon is how long a test waits for what must happen, on a loaded machine.
const soon = 30 * time.Second

func TestMain(m *testing.M) {
	if how := os.Getenv("TEMPLATE_TEST"); how != "" {
		beTemplate(how)
		return
	}
	leaveFor, lookEvery = 500*time.Millisecond, 20*time.Millisecond
	goleak.VerifyTestMain(m)
}

// beTemplate is a template that boots as how says.
func beTemplate(how string) {
	control, requests := os.NewFile(3, "control"), os.NewFile(4, "requests")
	hello := `{"hello":{"protocol":1,"template":true,"language":"go","app":"test"}}`
	switch how {
	case "exits":
		fmt.Fprintln(os.Stderr, "no database here")
		os.Exit(3)
	case "ends":
		os.Exit(0)
	case "closes": // and ends a moment later
		_ = control.Close()
		<-time.After(50 * time.Millisecond)
		os.Exit(5)
	case "hangs":
		<-time.After(time.Hour)
	case "junk":
		hello = "hello world"
	case "runner":
		hello = `{"hello":{"protocol":1}}`
	case "version":
		hello = `{"hello":{"protocol":2,"template":true}}`
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "full": // boots for a while, and finds then that it cannot work
		<-time.After(10*pauseFrom + 100*time.Millisecond)
		_, _ = fmt.Fprintln(control, hello)
		fmt.Fprintln(os.Stderr, "no room for files")
		os.Exit(71)
	}
	_, _ = fmt.Fprintln(control, hello)
	if how == "deaf" || how == "stuck" {
		<-time.After(time.Hour)
	}
	for buf := make([]byte, 100); ; {
		if n, err := requests.Read(buf); n == 0 || err != nil {
			os.Exit(0)
		}
	}
}

func start(t *testing.T, how string, change ...func(*Options)) *Template {
	t.Helper()
	o := Options{
		Runner: "app", Argv: []string{"/proc/self/exe", "-test.run=^$"}, Env: append(os.Environ(), "TEMPLATE_TEST="+how),
		Concurrency: 1, BootTimeout: soon, Log: zap.NewNop(),
	}
	for _, c := range change {
		c(&o)
	}
	tpl, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(tpl.Stop)
	return tpl
}

// ended waits until no process is left.
func ended(t *testing.T, tpl *Template) {
	t.Helper()
	select {
	case <-tpl.done:
	case <-time.After(soon):
		require.Fail(t, "the template has not ended")
	}
	require.Equal(t, Ended, tpl.Info().State)
}

func TestBoots(t *testing.T) {
	t.Parallel()
	tpl := start(t, "well")
	require.NoError(t, tpl.Booted(t.Context()))
	i := tpl.Info()
	require.Equal(t, Ready, i.State)
	require.True(t, proctest.Alive(i.PID))
	tpl.Stop()
	tpl.Stop()
	require.False(t, proctest.Alive(i.PID))
	require.Equal(t, Ended, tpl.Info().State)
}

func TestDoesNotBoot(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"exits":   "exit code 3; the end of its stderr:\nno database here",
		"ends":    "it has ended with exit code 0 before it was ready",
		"closes":  "exit code 5",
		"hangs":   "it was not ready after 200ms (boot_timeout)",
		"junk":    `its first line was "hello world`,
		"runner":  "it is not the hello of a template",
		"version": "it speaks version 2 of the protocol",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tpl := start(t, how, func(o *Options) {
				if how == "hangs" {
					o.BootTimeout = 200 * time.Millisecond
				}
			})
			err := tpl.Booted(t.Context())
			require.ErrorContains(t, err, `runner "app" cannot be started by ["/proc/self/exe" "-test.run=^$"]`)
			require.ErrorContains(t, err, want)
			require.Eventually(t, func() bool { return tpl.Info().Restarts > 1 }, soon, time.Millisecond, "it is tried again")
		})
	}
	t.Run("a program that is not there", func(t *testing.T) {
		t.Parallel()
		tpl := start(t, "well", func(o *Options) { o.Argv = []string{"no-such-program"} })
		require.ErrorContains(t, tpl.Booted(t.Context()), "not on the daemon's PATH")
	})
	t.Run("nobody waits for longer than asked", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, start(t, "hangs").Booted(ctx), context.Canceled)
	})
}

// A template that was ready is started again when it dies.
func TestDies(t *testing.T) {
	t.Parallel()
	tpl := start(t, "well")
	require.NoError(t, tpl.Booted(t.Context()))
	first := tpl.Info().PID
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	require.Eventually(t, func() bool { i := tpl.Info(); return i.State == Ready && i.PID != first }, soon, time.Millisecond)
	require.NoError(t, tpl.Booted(t.Context()), "it had booted")
}

// A template that does not take a request is ended and started again; others are left alone.
func TestHangs(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.ErrorLevel)
	stuck, well := start(t, "stuck", func(o *Options) { o.Log = zap.New(core) }), start(t, "well")
	for _, tpl := range []*Template{stuck, well} {
		require.NoError(t, tpl.Booted(t.Context()))
		_, err := tpl.Requests().Write([]byte(`{"fork":{}}`))
		require.NoError(t, err)
	}
	first := stuck.Info().PID
	require.Eventually(t, func() bool { i := stuck.Info(); return i.Restarts > 0 && i.PID != first }, soon, time.Millisecond)
	require.False(t, proctest.Alive(first))
	require.Contains(t, logged.All()[0].ContextMap()["because"], "it hung: it has not taken a request for a runner")
	require.Zero(t, well.Info().Restarts)
}

// A template that ends at once after being ready backs off, and says why.
func TestEndsWhenItIsReady(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.ErrorLevel)
	tpl := start(t, "full", func(o *Options) { o.Log = zap.New(core) })
	require.NoError(t, tpl.Booted(t.Context()))
	var ends []observer.LoggedEntry
	require.Eventually(t, func() bool {
		ends = logged.All()
		// The first pause is shorter than that, and no later one.
		return slices.ContainsFunc(ends, func(e observer.LoggedEntry) bool { return e.ContextMap()["again_in"].(time.Duration) >= pauseFrom })
	}, soon, 10*time.Millisecond)
	for _, end := range ends {
		require.Equal(t, "exit code 71; the end of its stderr:\nno room for files", end.ContextMap()["because"])
		require.Equal(t, true, end.ContextMap()["was_ready"])
	}
}

func TestRetire(t *testing.T) {
	t.Parallel()
	t.Run("nobody else has its socket", func(t *testing.T) {
		t.Parallel()
		tpl := start(t, "well")
		require.NoError(t, tpl.Booted(t.Context()))
		tpl.Retire()
		ended(t, tpl)
	})
	t.Run("a worker process has its socket", func(t *testing.T) {
		t.Parallel()
		tpl := start(t, "well")
		require.NoError(t, tpl.Booted(t.Context()))
		fd, err := unix.FcntlInt(tpl.Requests().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		holder := os.NewFile(uintptr(fd), filepath.Join(t.Name(), "holder"))
		defer func() { _ = holder.Close() }()
		first := tpl.Info().PID
		tpl.Retire()
		tpl.Retire()
		// It is needed, so it is started again, although no new worker process may get it.
		require.NoError(t, unix.Kill(first, unix.SIGKILL))
		require.Eventually(t, func() bool { i := tpl.Info(); return i.State == Ready && i.PID != first }, soon, time.Millisecond)
		require.NoError(t, holder.Close())
		ended(t, tpl)
	})
}

// Stop ends every process, whatever it does.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"hangs", "deaf", "exits"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tpl := start(t, how)
			if how != "hangs" {
				_ = tpl.Booted(t.Context())
			}
			require.Eventually(t, func() bool { return how == "exits" || tpl.Info().PID != 0 }, soon, time.Millisecond)
			pid := tpl.Info().PID
			tpl.Stop()
			require.Equal(t, Ended, tpl.Info().State)
			require.True(t, pid == 0 || !proctest.Alive(pid))
		})
	}
}

// Stop finds the process at any stage of its start.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 60 {
		tpl := start(t, "hangs", func(o *Options) { o.BootTimeout = time.Hour })
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			<-time.After(time.Duration(i) * 50 * time.Microsecond) // a process is there, or is not yet
			tpl.Stop()
		}()
		select {
		case <-stopped:
		case <-time.After(soon):
			_ = unix.Kill(tpl.Info().PID, unix.SIGKILL)
			require.Fail(t, "it does not stop")
		}
	}
}
