package main

import (
	"context"
	"encoding/json"

	"github.com/hibiken/asynq"

	"github.com/resqued/resqued/bench/job"
)

func asynqPeer() *peer {
	return &peer{
		name: "asynq", title: "asynq", guess: 8000,
		skip: func(s *scenario) string {
			switch {
			case s.Bulk:
				return "has no call for many jobs"
			case s.Depth > 1_000_000:
				return "filling it takes minutes"
			}
			return only(s, "")
		},
		fill:   fillByClient(newAsynqClient),
		client: newAsynqClient,
		work:   workAsynq,
	}
}

func workAsynq(_ context.Context, sp *spec, h *job.Handler) error {
	queues := map[string]int{}
	names := sp.Scenario.queueNames()
	for i, name := range names {
		queues[name] = len(names) - i
	}
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: sp.Redis, PoolSize: sp.Scenario.Threads + 10}, asynq.Config{
		Concurrency: sp.Scenario.Threads, Queues: queues, StrictPriority: len(names) > 1, LogLevel: asynq.ErrorLevel,
	})
	return server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var a job.Args
		if err := json.Unmarshal(task.Payload(), &a); err != nil {
			return err
		}
		return h.Perform(a.N)
	}))
}

type asynqClient struct{ client *asynq.Client }

func newAsynqClient(_ context.Context, sp *spec) (client, error) {
	return &asynqClient{asynq.NewClient(asynq.RedisClientOpt{Addr: sp.Redis, PoolSize: max(sp.Scenario.Goroutines, 4)})}, nil
}

func (c *asynqClient) enqueue(ctx context.Context, queue string, n int64, text string) error {
	payload, err := json.Marshal(job.Args{N: n, Text: text})
	if err != nil {
		return err
	}
	_, err = c.client.EnqueueContext(ctx, asynq.NewTask(job.Class, payload), asynq.Queue(queue))
	return err
}
