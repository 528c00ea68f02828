package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestMain also is the resqued that the scripts run: as a command, as a master,
// and as its worker processes.
func TestMain(m *testing.M) {
	if proc.IsWorker() {
		os.Exit(Main(testHandlers(), os.Args[1:]))
	}
	testscript.Main(leakFree{m}, map[string]func(){
		"resqued": func() { os.Exit(mainIn(testPlaces(), testHandlers(), os.Args[1:])) },
	})
}

// leakFree fails a run that leaves goroutines behind.
type leakFree struct{ m *testing.M }

func (l leakFree) Run() int {
	code := l.m.Run()
	if err := goleak.Find(redistest.Probing()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// testPlaces are where the resqued under test looks for configurations: nowhere, unless a
// script sets ROOT, and never in the directories of the machine.
func testPlaces() config.Places {
	root := os.Getenv("ROOT")
	if root == "" {
		return config.Places{}
	}
	return config.Places{Here: config.SystemPlaces().Here, Etc: root + "/etc/resqued", Credstore: root + "/etc/credstore"}
}

// testHandlers are the Go handlers of the resqued under test.
func testHandlers() *resqued.Handlers {
	h := resqued.New()
	h.HandleArgs("Greet", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("greetings"))
	// Linger runs until it is killed, and Deaf does not care.
	h.HandleArgs("Linger", func(ctx context.Context, args resqued.Args) error {
		if err := os.WriteFile("started-"+string(args[0]), nil, 0o600); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	h.HandleArgs("Deaf", func(_ context.Context, args resqued.Args) error {
		if err := os.WriteFile("started-"+string(args[0]), nil, 0o600); err != nil {
			return err
		}
		select {}
	})
	h.HandleArgs("Fail", func(context.Context, resqued.Args) error { return errors.New("no luck") })
	return h
}

func TestScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("REDIS_URL", server.URL())
			e.Setenv("RESQUE_NAMESPACE", fmt.Sprintf("cli%d-%s", os.Getpid(), strings.Trim(e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:], "/")))
			e.Setenv("XDG_RUNTIME_DIR", e.WorkDir+"/run")
			// The race detector makes every process sleep for a second when it ends.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("NS", e.Getenv("RESQUE_NAMESPACE"))
			program, err := exec.LookPath("resqued")
			if err != nil {
				return err
			}
			e.Setenv("RESQUED", program)
			return os.Mkdir(e.WorkDir+"/run", 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    exits,
			"await":    await,
			"until":    untilMatch,
			"signal":   signalLast,
			"page":     page,
			"redis":    func(ts *testscript.TestScript, _ bool, args []string) { redisCommand(t, ts, server, args) },
			"redis-is": func(ts *testscript.TestScript, neg bool, args []string) { redisIs(t, ts, server, neg, args) },
		},
	})
}

// exits runs a program and checks its exit code: exits 4 resqued queues x
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// await waits for a file to exist, or to hold a line that matches:
// await pid, await out '^done'
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [REGEXP]")
	}
	pattern := regexp.MustCompile("(?m)" + strings.Join(args[1:], ""))
	tick, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && pattern.Match(text) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			ts.Fatalf("%s: still no %q, but: %v\n%s", args[0], args[1:], err, text)
		}
	}
}

// page requests a page of the dashboard, whose address is in the output of "resqued dev", until it
// matches: page out /queues REGEXP
func page(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: page FILE PATH REGEXP")
	}
	at := regexp.MustCompile(`http://[^/]+`).FindString(ts.ReadFile(args[0]))
	pattern, text := regexp.MustCompile(args[2]), ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		answer, err := http.Get(at + args[1])
		ts.Check(err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		ts.Check(err)
		if text = string(body); pattern.MatchString(text) {
			return
		}
	}
	ts.Fatalf("%s: no %q, but: %s", at+args[1], args[2], text)
}

// untilMatch runs a program again and again until its output matches:
// until '^demo$' resqued queues
func untilMatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM [ARG...]")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		out := ts.ReadFile("stdout")
		if pattern.MatchString(out) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("still no %q, but: %s", args[0], out)
		}
	}
}

// signalLast sends a signal to the newest program in the background.
func signalLast(ts *testscript.TestScript, neg bool, args []string) {
	all := ts.BackgroundCmds()
	if neg || len(args) != 1 || len(all) == 0 {
		ts.Fatalf("usage: signal NAME, with a program in the background")
	}
	ts.Check(all[len(all)-1].Process.Signal(unix.SignalNum("SIG" + args[0])))
}

// redisCommand runs one command on Redis.
func redisCommand(t *testing.T, ts *testscript.TestScript, server *redistest.Server, args []string) any {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg
	}
	value, err := server.Client(t).Do(t.Context(), list...).Result()
	ts.Check(err)
	return value
}

// redisIs compares the answer of a command, words joined by blanks.
func redisIs(t *testing.T, ts *testscript.TestScript, server *redistest.Server, neg bool, args []string) {
	value := redisCommand(t, ts, server, args[1:])
	got := fmt.Sprint(value)
	if list, ok := value.([]any); ok {
		words := make([]string, len(list))
		for i, v := range list {
			words[i] = fmt.Sprint(v)
		}
		slices.Sort(words)
		got = strings.Join(words, " ")
	}
	if (got == args[0]) == neg {
		ts.Fatalf("%s: got %s, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}
