package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/resqued/resqued/bench/job"
)

// A peer is one of the programs that are compared.
type peer struct {
	name, title string
	postgres    bool
	// settings of PostgreSQL for its sessions.
	tuned bool
	// guess is roughly how many no-op jobs it does in a second with 50 threads: a
	// first measurement, which does not count, finds out better.
	guess int
	// skip tells why a scenario is left out; "" = it is not.
	skip func(s *scenario) string
	// fill puts n jobs into the queues of a scenario; not measured.
	fill func(ctx context.Context, t *target, s *scenario, n int) error
	// work runs the jobs until the process is killed.
	work func(ctx context.Context, sp *spec, h *job.Handler) error
	// client pushes jobs.
	client func(ctx context.Context, sp *spec) (client, error)
	// launch starts the workers in another way than as processes of work.
	launch func(t *target, sp *spec) (*child, error)
}

// client pushes jobs as a program that uses the peer does.
type client interface {
	enqueue(ctx context.Context, queue string, n int64, text string) error
	// bulk pushes jobs numbered from n on in one call.
	bulk(ctx context.Context, queue string, n int64, count int, text string) error
}

// target is where a peer's jobs are.
type target struct {
	redis *redisServer // nil for peers that do not use it
	pg    *postgres
	dir   string // of this measurement
	// daemon is the program of resqued.
	daemon string
}

// spec is what a child process is told.
type spec struct {
	Peer, Redis, Postgres, Shared string
	Scenario                      scenario
	Jobs                          int
	Profile                       string
}

// job is what a worker process has to know of the jobs.
func (sp *spec) job() job.Spec {
	s := &sp.Scenario
	j := job.Spec{
		Shared: sp.Shared, Wait: s.Wait, Sleep: s.Sleep, Latency: s.Kind == kindLatency, Command: s.Command,
		Text: s.text(), Redis: sp.Redis, Namespace: resqueNamespace, Profile: sp.Profile,
	}
	if s.Chain {
		j.Chain = s.queueOf(0)
	}
	return j
}

// text is the second argument of jobs.
func (sp *spec) text() string { return sp.Scenario.text() }

func (s *scenario) text() string {
	if s.Size > 0 {
		return strings.Repeat("x", s.Size)
	}
	return "a subject of some length"
}

func peers() []*peer {
	return []*peer{
		resquedPeer(), asynqPeer(), riverPeer(false), riverPeer(true), gocraftPeer(), goworkerPeer(), rawPeer(), redisBenchmarkPeer(), spawnPeer(),
	}
}

// resquePayload is a job of Resque: of resqued and of goworker.
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

// only leaves out scenarios about what resqued alone has, and others for a reason.
func only(s *scenario, more string) string {
	switch {
	case s.PerFork > 0 || strings.HasPrefix(s.Name, "recycle-"):
		return "does not replace its processes"
	case s.Locked:
		return "has no lock for each job"
	case s.Command:
		return "runs Go functions only"
	case s.Waker:
		return "has no waker"
	}
	return more
}
