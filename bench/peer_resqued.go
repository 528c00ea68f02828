package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/resqued/resqued/bench/job"
	resquedclient "github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
)

const resqueNamespace = "resque"

func resquedPeer() *peer {
	return &peer{
		name: "resqued", title: "resqued", guess: 60000,
		skip:   func(s *scenario) string { return missing(s.gems()) },
		fill:   fillResque,
		client: newResquedClient,
		launch: launchResqued,
	}
}

// heldTexts is the number of different arguments whose locks are held by another process.
const heldTexts = 10

func fillResque(ctx context.Context, t *target, s *scenario, n int) error {
	text := s.text()
	for i, queue := range s.queueNames() {
		if err := t.redis.client.SAdd(ctx, resqueNamespace+":queues", queue).Err(); err != nil {
			return err
		}
		count := s.inQueue(i, n)
		payload := func(j int) []byte { return resquePayload(int64(j*s.Queues+i), text) }
		switch {
		case s.App == "active_job":
			payload = func(j int) []byte { return resqueActiveJob(j, s) }
		case s.OneLock:
			payload = func(int) []byte { return resquePayload(0, text) }
		case s.Locked:
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
		// In the format of resque-locket: class and arguments, with an empty value.
		key := fmt.Sprintf(`%s:locket:job_locks:%s[%d,"held"]`, resqueNamespace, job.Class, i)
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

// launchResqued starts the daemon. Everything that does not define the scenario has its
// default, including locks.
func launchResqued(t *target, sp *spec) (*child, error) {
	s := &sp.Scenario
	queues := strings.Join(s.queueNames(), ", ")
	if s.Glob {
		queues = `"*"`
		for _, name := range s.queueNames() {
			if err := t.redis.client.SAdd(context.Background(), resqueNamespace+":queues", name).Err(); err != nil {
				return nil, err
			}
		}
	}
	text := fmt.Sprintf(resquedConfig, sp.Redis, resqueNamespace, s.Processes, s.Threads, s.PerFork, queues)
	if s.Waker {
		text += "waker: on\n"
	} else {
		text += "waker: off\n"
	}
	if s.Limited {
		text += "limits:\n  most: {classes: [" + job.Class + "], concurrency: 1000}\n"
	}
	if s.Command {
		text += "handlers:\n  " + job.Class + ": {command: [/bin/true]}\n"
	}
	if s.Runner {
		section, err := runnerSection(sp)
		if err != nil {
			return nil, err
		}
		text += section
	}
	file := filepath.Join(t.dir, "resqued.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(t.daemon, "work", "--config", file)
	cmd.Env, cmd.Dir = childEnv(job.Env, sp.job(), s.env()...), t.dir
	return start(cmd)
}

// daemonProgram returns the path of resqued's program: the given one, or one that it builds in
// a directory. It links what a user's program would, and is built like releases. It is started
// for every worker process, so code of other peers in it would be measured.
func daemonProgram(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given) // it is started in another directory
	}
	program := filepath.Join(dir, "daemon")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/resqued/resqued/bench/daemon")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the daemon: %w: %s (run this in the directory bench, or name a program with -daemon)", err, out)
	}
	return program, nil
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
	// The client has no call for many jobs, but the daemon's store has.
	s, err := store.Open(store.Options{URL: "redis://" + sp.Redis + "/0", Namespace: resqueNamespace})
	return &resquedClient{client: c, store: s}, err
}

func (c *resquedClient) enqueue(ctx context.Context, queue string, n int64, text string) error {
	_, err := c.client.Enqueue(ctx, job.Class, []any{n, text}, resquedclient.Queue(queue))
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

// checkResqued checks that resqued performed each job once, with nothing left.
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
