package main

import (
	"context"
	"encoding/json"
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
	// bulk pushes jobs numbered from n on in one call.
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
	j := job.Spec{
		Shared: sp.Shared, Wait: s.Wait, Sleep: s.Sleep, Latency: s.Kind == kindLatency, Command: s.Command || s.Runner,
		Text: s.text(), Redis: sp.Redis, Namespace: resqueNamespace, Profile: sp.Profile,
	}
	if s.Chain {
		j.Chain = s.queueOf(0)
	}
	return j
}

func (sp *spec) text() string { return sp.Scenario.text() }

func (s *scenario) text() string {
	if s.Size > 0 {
		return strings.Repeat("x", s.Size)
	}
	return "a subject of some length"
}

func peers() []*peer {
	return append([]*peer{
		resquedPeer(), asynqPeer(), riverPeer(false), riverPeer(true), gocraftPeer(), rawPeer(), redisBenchmarkPeer(), spawnPeer(),
	}, rubyPeers()...)
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
