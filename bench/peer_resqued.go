package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/resqued/resqued"
	resquedclient "github.com/resqued/resqued/client"
	"github.com/resqued/resqued/daemon"
	"github.com/resqued/resqued/internal/store"
)

const resqueNamespace = "resque"

func resquedPeer() *peer {
	return &peer{
		name: "resqued", title: "resqued", guess: 60000,
		skip:   func(*scenario) string { return "" },
		fill:   fillResque,
		client: newResquedClient,
		launch: launchResqued,
	}
}

// heldTexts make jobs whose locks somebody else holds.
const heldTexts = 10

func fillResque(ctx context.Context, t *target, s *scenario, n int) error {
	text := s.text()
	for i, queue := range s.queueNames() {
		if err := t.redis.client.SAdd(ctx, resqueNamespace+":queues", queue).Err(); err != nil {
			return err
		}
		count := 0
		for j := range min(n, s.Queues) { // the first job of each queue tells
			if s.queueOf(j) == queue {
				count++
			}
		}
		switch {
		case s.LastOnly && i == s.Queues-1:
			count = n
		case s.LastOnly:
			count = 0
		case count > 0:
			count = n / s.Queues
			if i < n%s.Queues {
				count++
			}
		}
		payload := func(j int) []byte { return resquePayload(int64(j*s.Queues+i), text) }
		if s.Locked {
			count *= 2
			payload = func(j int) []byte {
				if j%2 == 1 {
					return resquePayload(int64(j/2%heldTexts), "held")
				}
				return resquePayload(int64(j/2), text)
			}
		}
		if err := t.redis.push(ctx, resqueNamespace+":queue:"+queue, false, count, payload); err != nil {
			return err
		}
	}
	for i := range heldTexts {
		// As resque-locket writes it: class, arguments, no value.
		key := fmt.Sprintf(`%s:locket:job_locks:%s[%d,"held"]`, resqueNamespace, className, i)
		if err := t.redis.client.Set(ctx, key, "", time.Hour).Err(); err != nil {
			return err
		}
	}
	return nil
}

const resquedConfig = `redis_url: redis://%s/0
namespace: %s
worker_count: %d
thread_count: %d
jobs_per_fork: %d
queues: [%s]
log_level: warn
`

// launchResqued starts the daemon as anybody does: everything that is not about
// the shape of the scenario has its default, locks included.
func launchResqued(t *target, sp *spec) (*child, error) {
	s := &sp.Scenario
	text := fmt.Sprintf(resquedConfig, sp.Redis, resqueNamespace, s.Processes, s.Threads, s.PerFork, strings.Join(s.queueNames(), ", "))
	if s.Waker {
		text += "waker: on\n"
	}
	if s.Command {
		text += "handlers:\n  " + className + ": {command: [/bin/true]}\n"
	}
	file := filepath.Join(t.dir, "resqued.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "work", "--config", file)
	cmd.Env, cmd.Dir = childEnv(roleDaemon, sp), t.dir
	return start(cmd)
}

// runDaemon is the daemon with the handlers of the jobs, its worker processes included.
func runDaemon(sp *spec) {
	h, err := newHandler(context.Background(), sp, resquedPeer())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	handlers := resqued.New()
	if sp.Scenario.Command {
		handlers.Hook(resqued.Hooks{
			BeforePerform: func(context.Context, *resqued.Job) error { h.shared.begin(); return nil },
			AfterPerform:  func(context.Context, *resqued.Job) { h.shared.end() },
		})
	} else {
		resqued.Handle(handlers, className, func(ctx context.Context, a args) error { return h.perform(ctx, a.N, a.Text) })
	}
	if sp.Profile != "" {
		handlers.Hook(resqued.Hooks{AfterFork: func(context.Context) error { return profile(h.shared, sp.Profile) }})
	}
	daemon.Main(handlers)
}

// profile records what a worker process does until the measurement is over.
func profile(s *shared, prefix string) error {
	f, err := os.Create(fmt.Sprintf("%s-%d.pprof", prefix, os.Getpid()))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	go func() {
		for s.last.Load() == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		pprof.StopCPUProfile()
		_ = f.Close()
	}()
	return nil
}

type resquedClient struct {
	client *resquedclient.Client
	store  *store.Store
}

func newResquedClient(_ context.Context, sp *spec) (client, error) {
	c, err := resquedclient.New(resquedclient.Options{URL: "redis://" + sp.Redis + "/0", Namespace: resqueNamespace, PoolSize: max(sp.Scenario.Goroutines, 4)})
	if err != nil {
		return nil, err
	}
	// The client has no call for many jobs yet; the daemon's store has.
	s, err := store.Open(store.Options{URL: "redis://" + sp.Redis + "/0", Namespace: resqueNamespace})
	return &resquedClient{client: c, store: s}, err
}

func (c *resquedClient) enqueue(ctx context.Context, queue string, n int64, text string) error {
	_, err := c.client.Enqueue(ctx, className, []any{n, text}, resquedclient.Queue(queue))
	return err
}

func (c *resquedClient) bulk(ctx context.Context, queue string, n int64, count int, text string) error {
	payloads := make([][]byte, 0, count)
	for i := range count {
		payloads = append(payloads, resquePayload(n+int64(i), text))
	}
	_, err := c.store.Push(ctx, queue, payloads...)
	return err
}

// checkResqued is the proof that resqued did what was measured: each job once,
// nothing left behind.
func checkResqued(ctx context.Context, t *target, n int) error {
	processed := func() (int, error) { return t.redis.client.Get(ctx, resqueNamespace+":stat:processed").Int() }
	var done int
	for range 400 {
		var err error
		if done, err = processed(); err != nil && done == 0 {
			done = 0
		}
		if done == n {
			return nil
		}
		pause(5 * time.Millisecond)
	}
	failed, _ := t.redis.client.LIndex(ctx, resqueNamespace+":failed", 0).Result()
	return fmt.Errorf("resqued has counted %d of %d jobs; failed: %s", done, n, failed)
}
