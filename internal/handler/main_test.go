package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// soon is how long a test waits for what must happen, on a loaded machine.
const soon = 30 * time.Second

// init keeps the main thread of a test with a process of its own for the main goroutine: another
// thread starts commands.
func init() {
	if os.Getenv("HANDLER_TEST_LIMITED") != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if script := os.Getenv("HANDLER_TEST_WORKER"); script != "" {
		beWorker(script)
		return
	}
	goleak.VerifyTestMain(m)
}

// beWorker is the test binary as a worker process that will be killed.
func beWorker(script string) {
	s, err := handler.New(resqued.New(), handler.Options{Commands: map[string]resqued.Class{
		"Run": {Command: &resqued.Command{Argv: []string{"sh", "-c", script}}},
	}})
	if err == nil {
		err = s.Run(context.Background(), &resqued.Job{Class: "Run"})
	}
	fmt.Println("the worker was not killed:", err)
}

// fixture is a set with one command, "Run", in a directory of its own.
type fixture struct {
	*handler.Set
	dir  string
	logs *observer.ObservedLogs
}

// setup returns a set whose class Run is the given shell script. It runs in the
// fixture's directory.
func setup(t *testing.T, script string, change ...func(*handler.Options, *resqued.Class)) *fixture {
	t.Helper()
	testlevel.Integration(t)
	core, logs := observer.New(zap.DebugLevel)
	f := &fixture{dir: t.TempDir(), logs: logs}
	class := resqued.Class{Command: &resqued.Command{Argv: []string{"sh", "-c", script}, Dir: f.dir}}
	o := handler.Options{Proc: "web-1:boot:1-2:0.1" + os.Getenv("HANDLER_TEST_LIMITED"), Environ: os.Environ(), Log: zap.New(core)}
	for _, c := range change {
		c(&o, &class)
	}
	o.Commands = map[string]resqued.Class{"Run": class}
	s, err := handler.New(resqued.New(), o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	f.Set = s
	return f
}

// run performs one job of class Run.
func (f *fixture) run(ctx context.Context) error {
	return f.Run(ctx, &resqued.Job{ID: "j1", Class: "Run", Queue: "q", Attempt: 1})
}

// start performs one job of class Run in the background.
func (f *fixture) start(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f.run(ctx) }()
	return done
}

// wait returns the result of a started job.
func wait(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		require.Fail(t, "the job does not end")
		return nil
	}
}

// read returns a file that a script writes, as soon as it ends in a line break.
func (f *fixture) read(t *testing.T, name string) string {
	t.Helper()
	var text []byte
	require.Eventually(t, func() bool {
		text, _ = os.ReadFile(filepath.Join(f.dir, name))
		return strings.HasSuffix(string(text), "\n")
	}, soon, 2*time.Millisecond, "the script wrote no %s", name)
	return strings.TrimSpace(string(text))
}

// pid returns a process id that a script writes.
func (f *fixture) pid(t *testing.T, name string) int {
	t.Helper()
	pid, err := strconv.Atoi(f.read(t, name))
	require.NoError(t, err)
	return pid
}

func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func raw(texts ...string) resqued.Args {
	var a resqued.Args
	for _, text := range texts {
		a = append(a, json.RawMessage(text))
	}
	return a
}
