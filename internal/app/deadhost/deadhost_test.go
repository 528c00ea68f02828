package deadhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/app/deadhost"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake has silent hosts, each reported once.
type fake struct {
	mu       sync.Mutex
	silent   []store.Host
	asked    []store.SilentRequest
	err      error
	outcome  store.HostOutcome
	verdicts chan store.HostVerdict
}

func (f *fake) SilentHosts(_ context.Context, r store.SilentRequest) ([]store.Host, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	n := min(r.Most, len(f.silent))
	some := f.silent[:n]
	f.silent = f.silent[n:]
	return some, since.Add(20 * time.Second), f.err
}

func (f *fake) SettleHost(_ context.Context, v store.HostVerdict) (store.HostOutcome, error) {
	f.verdicts <- v
	return f.outcome, nil
}

func (f *fake) requests() []store.SilentRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]store.SilentRequest{}, f.asked...)
}

var (
	since = time.Date(2026, 11, 25, 18, 0, 0, 5e6, time.UTC)
	web1  = store.Host{Place: "web-1:b1", Last: since, Procs: 3, BootID: "0d6f-5b2e", Address: "10.0.0.7"}
)

// watching is a Watcher that runs until its test ends.
type watching struct {
	*fake
	*deadhost.Watcher
	t      *testing.T
	self   proc.Identity
	logs   *observer.ObservedLogs
	events chan store.Event
	found  chan bool
	stop   func()
}

func watch(t *testing.T, hosts []store.Host, outcome store.HostOutcome, cfg deadhost.Config) *watching {
	t.Helper()
	testlevel.Integration(t)
	core, logs := observer.New(zap.DebugLevel)
	w := &watching{
		t: t, self: proc.Identity{Host: "web-2", Boot: "b2", PID: os.Getpid(), Start: masters.Add(1)}, fake: &fake{silent: hosts, outcome: outcome, verdicts: make(chan store.HostVerdict, 100)},
		logs: logs, events: make(chan store.Event, 100), found: make(chan bool, 100),
	}
	w.Watcher = deadhost.New(w.fake, w.self, func(e store.Event) { w.events <- e }, func() { w.found <- true }, zap.New(core))
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	cfg.Env = append(cfg.Env, "PATH="+os.Getenv("PATH"))
	w.Use(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	w.stop = func() { cancel(); <-ended }
	t.Cleanup(w.stop)
	return w
}

// masters numbers those of this process, so that no sweep finds another one's processes.
var masters atomic.Uint64

func shell(script string) []string { return []string{"sh", "-c", script, "hook"} }

func (w *watching) verdict() store.HostVerdict {
	w.t.Helper()
	select {
	case v := <-w.verdicts:
		return v
	case <-time.After(time.Minute):
		w.t.Fatalf("no verdict: %v", w.logs.All())
		return store.HostVerdict{}
	}
}

// left returns the remaining processes of hooks.
func (w *watching) left() []proctest.Process {
	return proctest.Find(func(p proctest.Process) bool {
		return strings.HasPrefix(p.Env("RESQUED_PROC"), w.self.String()+":hook-")
	})
}

func TestAHookThatProvesADeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := watch(t, []store.Host{web1}, store.HostOutcome{Outcome: store.HostFenced, Procs: []string{"a", "b"}, Left: 1}, deadhost.Config{
		Command: shell(`env >"$DIR/env"; echo "$#:$1" >"$DIR/args"; echo it is gone; echo really >&2; sleep 1000 & exit 0`),
		Env:     []string{"DIR=" + dir}, After: 9 * time.Second, Timeout: 50 * time.Second,
	})
	v := w.verdict()
	asked := w.requests()[0]
	require.Equal(t, store.SilentRequest{Place: "web-2:b2", After: 9 * time.Second, Most: 8, Turn: asked.Turn, For: time.Minute}, asked)
	require.Contains(t, asked.Turn, w.self.String())
	require.Equal(t, store.HostVerdict{Place: "web-1:b1", Dead: true, Last: since, Turn: asked.Turn, Pause: 5 * time.Second}, v)
	require.True(t, <-w.found)
	require.Equal(t, store.Event{
		Kind: store.EventHostDead, Subject: "host web-1", Count: 2,
		Text: "proven dead by host_dead_hook after 20s of silence; 1 processes of another version keep their leases",
	}, withoutSeconds(<-w.events))
	text, err := os.ReadFile(filepath.Join(dir, "args"))
	require.NoError(t, err)
	require.Equal(t, "1:web-1\n", string(text))
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	require.NoError(t, err)
	for _, line := range []string{
		"RESQUED_HOST=web-1", "RESQUED_HOST_BOOT=b1", "RESQUED_HOST_BOOT_ID=0d6f-5b2e", "RESQUED_HOST_ADDRESS=10.0.0.7",
		"RESQUED_HOST_SINCE=2026-11-25T18:00:00.005Z", "RESQUED_HOST_SILENT=20", "RESQUED_HOST_PROCESSES=3",
	} {
		require.Contains(t, strings.Split(string(env), "\n"), line)
	}
	for _, line := range []string{"it is gone", "really"} {
		require.Len(t, w.logs.FilterMessage("host_dead_hook output").FilterField(zap.String("line", line)).All(), 1)
	}
	require.Empty(t, w.left(), "what it has left in the background goes, too")
}

// withoutSeconds returns an event as if the hook had taken no time.
func withoutSeconds(e store.Event) store.Event {
	head, rest, _ := strings.Cut(e.Text, " after ")
	_, rest, _ = strings.Cut(rest, " ")
	e.Text = head + " after 20s " + rest
	return e
}

func TestAHookThatProvesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		timeout time.Duration
		why     string
	}{
		"an exit code":        {shell("exit 3"), time.Minute, "exit status 3"},
		"a signal":            {shell("kill -9 $$"), time.Minute, "signal: killed"},
		"no such program":     {[]string{"/no/such/program"}, time.Minute, "no such file"},
		"it takes too long":   {shell("trap '' TERM; (setsid sleep 1000 &); sleep 1000 & wait"), time.Second, "host_dead_timeout"},
		"so does its process": {shell("exec sleep 1000"), time.Second, "host_dead_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, []store.Host{web1}, store.HostOutcome{Outcome: store.HostFenced}, deadhost.Config{Command: c.command, Timeout: c.timeout})
			require.False(t, w.verdict().Dead)
			w.stop()
			require.Empty(t, w.found)
			require.Empty(t, w.events)
			said := w.logs.FilterMessageSnippet("has not proven").All()
			require.Len(t, said, 1)
			require.Contains(t, said[0].ContextMap()["error"], c.why)
			proctest.Await(t, time.Minute, func() bool { return len(w.left()) == 0 }, "the end of all that hooks have started")
		})
	}
}

func TestAHookIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{store.HostAlive, store.HostUnknown, store.HostNotOurs} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			w := watch(t, []store.Host{web1}, store.HostOutcome{Outcome: outcome, Last: since.Add(time.Minute)}, deadhost.Config{Command: []string{"true"}})
			require.True(t, w.verdict().Dead)
			w.stop()
			require.Empty(t, w.found)
			require.Empty(t, w.events)
		})
	}
}

func TestManyHosts(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	var hosts []store.Host
	for _, n := range "abcdefghij" {
		hosts = append(hosts, store.Host{Place: string(n) + ":b", Last: since, Procs: 1})
	}
	w := watch(t, hosts, store.HostOutcome{Outcome: store.HostFenced, Procs: []string{"p"}}, deadhost.Config{
		Command: shell(`until [ -e "$GATE" ]; do sleep 0.05; done`), Env: []string{"GATE=" + gate},
	})
	proctest.Await(t, time.Minute, func() bool { return len(w.logs.FilterMessageSnippet("asking host_dead_hook").All()) == 8 }, "eight hooks")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for range hosts {
		require.True(t, w.verdict().Dead)
	}
	for _, r := range w.requests() {
		require.LessOrEqual(t, r.Most, 8)
	}
}

func TestNamesThatNoProgramIsGiven(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	var hosts []store.Host
	for _, name := range []string{"--help", "a;b", "", strings.Repeat("a", 300), "a\nb", "$(x)"} {
		hosts = append(hosts, store.Host{Place: name + ":b", Last: since, Procs: 1})
	}
	w := watch(t, hosts, store.HostOutcome{Outcome: store.HostFenced}, deadhost.Config{Command: []string{"touch", ran}})
	for range hosts {
		require.False(t, w.verdict().Dead)
	}
	require.NoFileExists(t, ran)
}

func TestWithoutAHook(t *testing.T) {
	t.Parallel()
	w := watch(t, []store.Host{web1}, store.HostOutcome{Outcome: store.HostFenced}, deadhost.Config{})
	w.Use(deadhost.Config{Command: []string{"true"}, Timeout: time.Minute, After: 7 * time.Second})
	require.True(t, w.verdict().Dead, "from when there is one")
	for _, r := range w.requests() {
		require.Equal(t, 7*time.Second, r.After, "not before")
	}
}

func TestTheEndOfAMaster(t *testing.T) {
	t.Parallel()
	w := watch(t, []store.Host{web1}, store.HostOutcome{Outcome: store.HostFenced}, deadhost.Config{Command: shell("setsid sleep 1000 & sleep 1000")})
	proctest.Await(t, time.Minute, func() bool { return len(w.left()) > 1 }, "a hook that runs")
	w.stop()
	require.False(t, w.verdict().Dead)
	proctest.Await(t, time.Minute, func() bool { return len(w.left()) == 0 }, "its end")
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	w := watch(t, nil, store.HostOutcome{}, deadhost.Config{Command: []string{"true"}})
	w.mu.Lock()
	w.err = errors.New("away")
	w.mu.Unlock()
	n := len(w.requests())
	proctest.Await(t, time.Minute, func() bool { return len(w.requests()) > n+1 }, "more looks")
	w.stop()
	require.LessOrEqual(t, len(w.logs.FilterMessageSnippet("cannot be looked for").All()), 1)
	require.Empty(t, w.verdicts)
}
