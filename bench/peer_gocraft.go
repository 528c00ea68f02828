package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"

	"github.com/resqued/resqued/bench/job"
)

const gocraftNamespace = "bench"

func gocraftPeer() *peer {
	return &peer{
		name: "gocraft", title: "gocraft/work", guess: 20000,
		skip: func(s *scenario) string {
			if s.Bulk {
				return "has no call for many jobs"
			}
			return only(s, "")
		},
		fill: func(ctx context.Context, t *target, s *scenario, n int) error {
			text := s.text()
			for i, name := range s.queueNames() {
				err := t.redis.push(ctx, gocraftNamespace+":jobs:"+name, true, s.inQueue(i, n), func(j int) []byte {
					b, err := json.Marshal(work.Job{
						Name: name, ID: fmt.Sprintf("%024x", j), EnqueuedAt: 1700000000, Args: map[string]any{"n": j, "text": text},
					})
					if err != nil {
						panic(err) // numbers and texts
					}
					return b
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		client: newGocraftClient,
		work:   workGocraft,
	}
}

func gocraftPool(addr string, size int) *redis.Pool {
	return &redis.Pool{MaxActive: size, MaxIdle: size, Wait: true, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
}

type gocraftContext struct{}

func workGocraft(_ context.Context, sp *spec, h *job.Handler) error {
	threads := sp.Scenario.Threads
	pool := work.NewWorkerPool(gocraftContext{}, uint(threads), gocraftNamespace, gocraftPool(sp.Redis, threads+10))
	names := sp.Scenario.queueNames()
	for i, name := range names {
		// Its queues are its job types.
		pool.JobWithOptions(name, work.JobOptions{Priority: uint(len(names) - i), MaxFails: 1}, func(j *work.Job) error {
			n, _ := j.ArgInt64("n"), j.ArgString("text")
			if err := j.ArgError(); err != nil {
				return err
			}
			return h.Perform(n)
		})
	}
	pool.Start()
	return forever()
}

type gocraftClient struct{ enqueuer *work.Enqueuer }

func newGocraftClient(_ context.Context, sp *spec) (client, error) {
	return &gocraftClient{work.NewEnqueuer(gocraftNamespace, gocraftPool(sp.Redis, max(sp.Scenario.Goroutines, 4)))}, nil
}

func (c *gocraftClient) enqueue(_ context.Context, queue string, n int64, text string) error {
	_, err := c.enqueuer.Enqueue(queue, work.Q{"n": n, "text": text})
	return err
}
