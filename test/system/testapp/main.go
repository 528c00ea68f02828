// Command testapp is a program like those of users: handlers in Go around daemon.Main. The
// system tests use its jobs. Every class takes the number of the job as its first argument and
// counts its runs in hashes next to the daemon's own keys, so that a test sees what really ran.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
)

// Environment variables by which the tests configure the handlers.
const (
	redisEnv = "RESQUED_TEST_REDIS" // address of the tests' Redis
	spaceEnv = "RESQUED_TEST_SPACE" // namespace
	gateEnv  = "RESQUED_TEST_GATE"  // a file without which no worker process becomes ready
	traceEnv = "RESQUED_TEST_TRACE" // a directory for what jobs note outside of Redis
	rowsEnv  = "RESQUED_TEST_ROWS"  // URL of the PostgreSQL whose rows long jobs delete, or mysql: and a data source name
	recurEnv = "RESQUED_TEST_RECUR" // not empty: jobs come by themselves
)

func main() {
	h := resqued.New()
	register(h)
	daemon.Main(h)
}

// notes is where the handlers of this process record what happened.
type notes struct {
	client *redis.Client
	space  string
	trace  trace
}

// slow is how long Redis may take on a busy machine.
const slow = 30 * time.Second

func (n *notes) mark(kind string, id int) error {
	// Not the job's context: what a killed job has done must still be noted.
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	pipe := n.client.Pipeline()
	pipe.HIncrBy(ctx, n.space+":test:"+kind, strconv.Itoa(id), 1)
	if kind == "started" {
		pipe.HSet(ctx, n.space+":test:pid", id, os.Getpid())
	}
	// Unlike its pid, the name of a process is never reused.
	pipe.HIncrBy(ctx, n.space+":test:"+kind+"-by", os.Getenv("RESQUED_PROC"), 1)
	_, err := pipe.Exec(ctx)
	return err
}

func register(h *resqued.Handlers) {
	n := &notes{space: os.Getenv(spaceEnv), trace: trace{dir: os.Getenv(traceEnv)}}
	if url := os.Getenv(redisEnv); url != "" {
		o, err := redis.ParseURL(url)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", redisEnv, err))
		}
		o.DisableIdentity = true
		o.MaxRetries = -1 // a count that is made twice would look like a job that ran twice
		// A Redis that is slow on a busy machine must not fail the job.
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = slow, slow, slow
		n.client = redis.NewClient(o)
	}
	h.Hook(resqued.Hooks{AfterFork: func(ctx context.Context) error {
		return awaitFile(ctx, os.Getenv(gateEnv))
	}})

	// Parent is a Stubborn with a process in its own session.
	resqued.Handle(h, "Parent", func(ctx context.Context, id int) error {
		c := exec.Command("setsid", "sleep", "1001")
		if err := c.Start(); err != nil {
			return err
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		return n.gate(ctx, id, false)
	})
	// Count only notes its run.
	resqued.Handle(h, "Count", func(_ context.Context, id int) error {
		return n.mark("ran", id)
	})
	// Gate runs until the test opens it, or until it is killed.
	resqued.Handle(h, "Gate", func(ctx context.Context, id int) error {
		return n.gate(ctx, id, true)
	})
	// Stubborn is a Gate that ignores cancellation.
	resqued.Handle(h, "Stubborn", func(ctx context.Context, id int) error {
		return n.gate(ctx, id, false)
	})
	// Busy never ends and never yields.
	resqued.Handle(h, "Busy", func(_ context.Context, id int) error {
		if err := n.mark("started", id); err != nil {
			return err
		}
		for spin.Load() == 0 {
		}
		return nil
	})
	resqued.Handle(h, "Sleep", func(ctx context.Context, a struct{ ID, Milliseconds int }) error {
		if err := n.mark("started", a.ID); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(a.Milliseconds) * time.Millisecond):
		}
		return n.mark("ran", a.ID)
	})
	registerLocked(h, n)
	registerClassLocked(h, n)
	registerOnce(h, n)
	registerStuck(h, n)
	registerRetries(h, n)
	registerLong(h, n)
	registerTodo(h, n)
	registerDeaf(h, n)
	registerRows(h, os.Getenv(rowsEnv))
	registerRecurring(h, n)
	resqued.Handle(h, "Fail", func(_ context.Context, id int) error {
		return errors.Join(n.mark("ran", id), fmt.Errorf("job %d fails as it should", id))
	})
	resqued.Handle(h, "Panic", func(_ context.Context, id int) error {
		panic(fmt.Sprintf("job %d panics as it should", id))
	})
	// Crash kills its process, as a bug in C code would.
	resqued.Handle(h, "Crash", func(_ context.Context, id int) error {
		if err := n.mark("started", id); err != nil {
			return err
		}
		os.Exit(9)
		return nil
	})
	// Exit ends its process with an exit code, as a script would.
	resqued.Handle(h, "Exit", func(_ context.Context, a struct{ ID, Code int }) error {
		if err := n.mark("started", a.ID); err != nil {
			return err
		}
		os.Exit(a.Code)
		return nil
	})
	// Leak keeps a megabyte of memory for ever.
	resqued.Handle(h, "Leak", func(_ context.Context, id int) error {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1 // a page that was never written costs nothing
		}
		leaked.Add(1)
		leak(block)
		return n.mark("ran", id)
	})
}

var (
	spin   atomic.Int64
	leaked atomic.Int64
	blocks = make(chan []byte, 1<<20)
)

func leak(block []byte) { blocks <- block }

// gate notes the start, waits for the test:open key, and notes the end.
func (n *notes) gate(ctx context.Context, id int, killable bool) error {
	if err := n.mark("started", id); err != nil {
		return err
	}
	span, err := n.trace.begin(ctx)
	if err != nil {
		return err
	}
	if !killable {
		ctx = context.WithoutCancel(ctx)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		open, err := n.client.Exists(ctx, n.space+":test:open").Result()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case open == 1:
			return errors.Join(n.mark("ran", id), span.note("end"))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// awaitFile waits until a file exists; an empty path returns at once.
func awaitFile(ctx context.Context, path string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for path != "" {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
