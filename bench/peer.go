package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// className is the class of every job.
const className = "Noop"

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
	work func(ctx context.Context, sp *spec, h *handler) error
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
}

// spec is what a child process is told.
type spec struct {
	Peer, Redis, Postgres, Shared string
	Scenario                      scenario
	Jobs                          int
	Profile                       string
}

// handler is what every peer's handler does with a job.
type handler struct {
	sp      *spec
	shared  *shared
	client  client // for chains
	latency bool
}

func (h *handler) perform(ctx context.Context, n int64, _ string) error {
	h.shared.begin()
	if h.latency {
		h.shared.late(n)
	}
	if h.sp.Scenario.Sleep > 0 {
		time.Sleep(h.sp.Scenario.Sleep)
	}
	if h.client != nil {
		if err := h.client.enqueue(ctx, h.sp.Scenario.queueOf(0), n+1, h.sp.text()); err != nil {
			return err
		}
	}
	h.shared.end()
	return nil
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

// args are the two arguments where a peer has objects for arguments.
type args struct {
	N    int64  `json:"n"`
	Text string `json:"text"`
}

// resquePayload is a job of Resque: of resqued and of goworker.
func resquePayload(n int64, text string) []byte {
	b, err := json.Marshal(struct {
		Class string `json:"class"`
		Args  []any  `json:"args"`
	}{className, []any{n, text}})
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
