package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/resqued/resqued/bench/job"
)

// A peer is one of the compared programs.
type peer struct {
	name, title string
	postgres    bool
	// tuned selects PostgreSQL's settings for the peer's sessions.
	tuned bool
	// guess is roughly the number of no-op jobs per second with 50 threads. A first
	// measurement, which does not count, improves it.
	guess int
	// skip returns why a scenario is left out, or "".
	skip func(s *scenario) string
	// fill puts n jobs into the queues of a scenario; it is not measured.
	fill func(ctx context.Context, t *target, s *scenario, n int) error
	// work runs jobs until the process is killed.
	work func(ctx context.Context, sp *spec, h *job.Handler) error
	// client pushes jobs.
	client func(ctx context.Context, sp *spec) (client, error)
	// launch starts the workers if they are not processes that run work.
	launch func(t *target, sp *spec) (*child, error)
}

type client interface {
	enqueue(ctx context.Context, queue string, n int64, text string) error
}

// bulker is a client with a call for many jobs, numbered from n on.
type bulker interface {
	bulk(ctx context.Context, queue string, n int64, count int, text string) error
}

type target struct {
	redis *redisServer // nil for peers that do not use it
	pg    *postgres
	dir   string // of this measurement
	// daemon is the path of resqued's program.
	daemon string
}

type spec struct {
	Peer, Redis, Postgres, Shared string
	Scenario                      scenario
	Jobs                          int
	Profile                       string
}

func (sp *spec) job() job.Spec {
	s := &sp.Scenario
	return job.Spec{
		Shared: sp.Shared, Wait: s.Wait, Sleep: s.Sleep, Latency: s.Kind == kindLatency, Command: s.Command || s.Runner, Profile: sp.Profile,
	}
}

func (s *scenario) text() string {
	if s.Size > 0 {
		return strings.Repeat("x", s.Size)
	}
	return "a subject of some length"
}

func peers() []*peer {
	return append([]*peer{resquedPeer(), asynqPeer(), riverPeer(false), riverPeer(true), gocraftPeer()}, rubyPeers()...)
}

// fillByClient fills the queues with the peer's own client, because its jobs are more than list
// elements.
func fillByClient(open func(ctx context.Context, sp *spec) (client, error)) func(ctx context.Context, t *target, s *scenario, n int) error {
	return func(ctx context.Context, t *target, s *scenario, n int) error {
		sp := &spec{Scenario: *s}
		sp.Scenario.Goroutines = 10
		sp.address(t)
		c, err := open(ctx, sp)
		if err != nil {
			return err
		}
		if _, ok := c.(bulker); ok && (s.Queues == 1 || s.LastOnly) {
			sp.Scenario.Bulk, sp.Scenario.Goroutines = true, 1
		}
		return pushAll(ctx, c, &sp.Scenario, n)
	}
}

// pushAll pushes jobs one by one, or in bulk into one queue.
func pushAll(ctx context.Context, c client, s *scenario, n int) error {
	const bulkSize = 1000
	text := s.text()
	many, _ := c.(bulker)
	errs := make(chan error, s.Goroutines)
	for g := range s.Goroutines {
		go func() {
			var err error
			if s.Bulk {
				for i := 0; i < n && err == nil; i += bulkSize {
					err = many.bulk(ctx, s.queueOf(0), int64(i), min(bulkSize, n-i), text)
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

func resquePayload(n int64, text string) []byte {
	b, err := json.Marshal(struct {
		Class string `json:"class"`
		Args  []any  `json:"args"`
	}{job.Class, []any{n, text}})
	if err != nil {
		panic(err) // numbers and texts
	}
	return b
}

func resqueActiveJob(n int, s *scenario) []byte {
	b, err := json.Marshal(map[string]any{"class": "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper", "args": []any{serialized(n, s)}})
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// only returns why a scenario is left out: only resqued has what it measures, or the reason
// more.
func only(s *scenario, more string) string {
	switch {
	case s.PerFork > 0 || strings.HasPrefix(s.Name, "recycle-"):
		return "does not replace its processes"
	case s.Locked, s.OneLock:
		return "has no lock for each job"
	case s.Command, s.Runner:
		return "runs Go functions only"
	case s.Glob:
		return "knows its queues by name"
	case s.Waker:
		return "has no waker"
	}
	return more
}
