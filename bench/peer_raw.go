package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/bench/job"
)

var errNoBulk = errors.New("no call for many jobs")

// plain skips scenarios in which a physical limit means nothing.
func plain(s *scenario) string {
	if s.Kind == kindDrain && (s.Wait+s.Sleep > 0 || s.Queues > 1 || s.Depth > 0 || s.Chain || s.Locked || s.Command) {
		return "a limit for no-op jobs only"
	}
	if s.Kind == kindLatency || s.Kind == kindIdle || s.Runner {
		return "a limit for no-op jobs only"
	}
	return ""
}

const rawKey = "raw:queue"

// rawPeer is the minimum work of a worker in Go: pipelines of as many LPOPs as there are
// threads, and one addition to a counter. Nothing is decoded, recorded or locked. Two pipelines
// are in flight, so the server need not wait.
func rawPeer() *peer {
	return &peer{
		name: "raw", title: "raw: pipelined LPOP, go-redis", guess: 200000,
		skip: plain,
		fill: func(ctx context.Context, t *target, s *scenario, n int) error {
			text := s.text()
			return t.redis.push(ctx, rawKey, false, n, func(i int) []byte { return resquePayload(int64(i), text) })
		},
		client: func(_ context.Context, sp *spec) (client, error) {
			return &rawClient{newRedis(sp.Redis, max(sp.Scenario.Goroutines, 4))}, nil
		},
		work: workRaw,
	}
}

func workRaw(ctx context.Context, sp *spec, h *job.Handler) error {
	c := newRedis(sp.Redis, 4)
	loops := 2
	if sp.Scenario.Threads == 1 {
		loops = 1
	}
	failed := make(chan error, loops)
	for range loops {
		go func() {
			for {
				pipe := c.Pipeline()
				popped := make([]*redis.StringCmd, sp.Scenario.Threads)
				for i := range popped {
					popped[i] = pipe.LPop(ctx, rawKey)
				}
				pipe.IncrBy(ctx, "raw:done", int64(len(popped)))
				if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
					failed <- err
					return
				}
				for _, p := range popped {
					if p.Err() == nil {
						h.Shared.Begin()
						h.Shared.End()
					}
				}
			}
		}()
	}
	return <-failed
}

type rawClient struct{ client *redis.Client }

func (c *rawClient) enqueue(ctx context.Context, _ string, n int64, text string) error {
	return c.client.RPush(ctx, rawKey, resquePayload(n, text)).Err()
}

func (c *rawClient) bulk(ctx context.Context, _ string, n int64, count int, text string) error {
	payloads := make([]any, 0, count)
	for i := range count {
		payloads = append(payloads, resquePayload(n+int64(i), text))
	}
	return c.client.RPush(ctx, rawKey, payloads...).Err()
}

var requests = regexp.MustCompile(`([0-9.]+) requests per second`)

// redisBenchmarkPeer measures the server with a client that costs next to nothing.
func redisBenchmarkPeer() *peer {
	return &peer{
		name: "redis-benchmark", title: "raw: redis-benchmark LPOP", guess: 200000,
		skip: func(s *scenario) string {
			if s.Kind != kindDrain || s.Processes > 1 || s.Size > 0 {
				return "a limit for no-op jobs only"
			}
			return plain(s)
		},
		fill: rawPeer().fill,
		work: func(_ context.Context, sp *spec, h *job.Handler) error {
			_, port, _ := splitAddr(sp.Redis)
			// -P jobs per pipeline, like raw; two connections, so the server need not wait.
			clients := min(sp.Scenario.Threads, 2)
			h.Shared.Pass()
			text, err := exec.Command("redis-benchmark", "-p", port, "-n", fmt.Sprint(sp.Jobs), "-c", fmt.Sprint(clients),
				"-P", fmt.Sprint(sp.Scenario.Threads), "-q", "LPOP", rawKey).CombinedOutput()
			if err != nil {
				return fmt.Errorf("redis-benchmark: %w: %s", err, text)
			}
			// Its own figure excludes its start.
			var perSecond float64
			if found := requests.FindSubmatch(text); found != nil {
				perSecond, _ = strconv.ParseFloat(string(found[1]), 64)
			}
			if perSecond == 0 {
				return fmt.Errorf("redis-benchmark: %s", text)
			}
			h.Shared.Done.Store(int64(sp.Jobs))
			h.Shared.Last.Store(h.Shared.First.Load() + int64(float64(sp.Jobs)/perSecond*float64(time.Second)))
			return forever()
		},
	}
}

// spawnPeer starts a program as often as it can, without jobs: the minimum cost of command
// handlers.
func spawnPeer() *peer {
	return &peer{
		name: "spawn", title: "bare spawn of /bin/true", guess: 2000,
		skip: func(s *scenario) string {
			if !s.Command {
				return "a limit for commands only"
			}
			return ""
		},
		fill: func(context.Context, *target, *scenario, int) error { return nil },
		work: func(ctx context.Context, sp *spec, h *job.Handler) error {
			failed := make(chan error)
			for range sp.Scenario.Threads {
				go func() {
					for ctx.Err() == nil {
						h.Shared.Begin()
						if err := exec.Command("/bin/true").Run(); err != nil {
							failed <- err
							return
						}
						h.Shared.End()
					}
				}()
			}
			return <-failed
		},
	}
}

// fillByClient fills the queues with the peer's own client, because its jobs are more than list
// elements.
func fillByClient(open func(ctx context.Context, sp *spec) (client, error)) func(ctx context.Context, t *target, s *scenario, n int) error {
	return func(ctx context.Context, t *target, s *scenario, n int) error {
		sp := &spec{Scenario: *s}
		sp.Scenario.Kind, sp.Scenario.Goroutines = kindEnqueue, 10
		sp.address(t)
		c, err := open(ctx, sp)
		if err != nil {
			return err
		}
		if _, ok := c.(*riverClient); ok {
			const batch = 2000
			for i := 0; i < n; i += batch {
				count := min(batch, n-i)
				if s.Queues > 1 && !s.LastOnly {
					count = 1
				}
				for j := 0; j < min(batch, n-i); j += count {
					if err := c.bulk(ctx, s.queueOf(i+j), int64(i+j), count, s.text()); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return pushAll(ctx, c, &sp.Scenario, n)
	}
}

const bulkSize = 1000

func pushAll(ctx context.Context, c client, s *scenario, n int) error {
	text := s.text()
	errs := make(chan error, s.Goroutines)
	for g := range s.Goroutines {
		go func() {
			var err error
			if s.Bulk {
				for i := 0; i < n && err == nil; i += bulkSize {
					err = c.bulk(ctx, s.queueOf(0), int64(i), min(bulkSize, n-i), text)
				}
			}
			for i := g; i < n && err == nil && !s.Bulk; i += s.Goroutines {
				err = c.enqueue(ctx, s.queueOf(i), int64(i), text)
			}
			errs <- err
		}()
	}
	var err error
	for range s.Goroutines {
		err = errors.Join(err, <-errs)
	}
	return err
}

const wait = time.Minute
