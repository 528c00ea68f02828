package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/resqued/resqued/bench/job"
)

// tunedWorkers is how many of River's jobs run per thread in its best setting.
const tunedWorkers = 10

func riverPeer(tuned bool) *peer {
	p := &peer{
		name: "river", title: "River", postgres: true, tuned: tuned, guess: 400,
		skip: func(s *scenario) string {
			switch {
			case s.Queues > 100:
				return "has a fetcher for each queue"
			case s.Depth > 1_000_000:
				return "filling it takes minutes"
			}
			return only(s, "")
		},
		fill:   fillByClient(newRiverClient),
		client: newRiverClient,
		work:   workRiver(tuned),
	}
	if tuned {
		p.name, p.title, p.guess = "river-best", "River, tuned", 8000
	}
	return p
}

// riverArgs are the arguments of a job, and select its worker.
type riverArgs job.Args

// Kind returns the class.
func (riverArgs) Kind() string { return job.Class }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	h *job.Handler
}

// Work runs one job.
func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	return w.h.Perform(j.Args.N)
}

func workRiver(tuned bool) func(ctx context.Context, sp *spec, h *job.Handler) error {
	return func(ctx context.Context, sp *spec, h *job.Handler) error {
		pool, err := riverPool(ctx, sp.Postgres)
		if err != nil {
			return err
		}
		config := &river.Config{
			Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
			Workers: river.NewWorkers(), Queues: map[string]river.QueueConfig{},
		}
		workers := sp.Scenario.Threads
		if tuned {
			config.FetchCooldown = time.Millisecond
			config.FetchPollInterval = 10 * time.Millisecond
			workers *= tunedWorkers
		}
		for _, queue := range sp.Scenario.queueNames() {
			config.Queues[queue] = river.QueueConfig{MaxWorkers: workers}
		}
		river.AddWorker(config.Workers, &riverWorker{h: h})
		c, err := river.NewClient(riverpgxv5.New(pool), config)
		if err != nil {
			return err
		}
		if err := c.Start(ctx); err != nil {
			return err
		}
		return forever()
	}
}

func riverPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20
	return pgxpool.NewWithConfig(ctx, config)
}

type riverClient struct{ client *river.Client[pgx.Tx] }

func newRiverClient(ctx context.Context, sp *spec) (client, error) {
	pool, err := riverPool(ctx, sp.Postgres)
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	return &riverClient{c}, err
}

func (c *riverClient) enqueue(ctx context.Context, queue string, n int64, text string) error {
	_, err := c.client.Insert(ctx, riverArgs{n, text}, &river.InsertOpts{Queue: queue})
	return err
}

func (c *riverClient) bulk(ctx context.Context, queue string, n int64, count int, text string) error {
	jobs := make([]river.InsertManyParams, 0, count)
	for i := range count {
		jobs = append(jobs, river.InsertManyParams{Args: riverArgs{n + int64(i), text}, InsertOpts: &river.InsertOpts{Queue: queue}})
	}
	_, err := c.client.InsertManyFast(ctx, jobs)
	return err
}
