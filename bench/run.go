package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// run measures everything, round by round. In each round every peer has its turn in every
// scenario, because the machine's speed varies over minutes.
func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	b := &bench{o: o, dir: dir, rate: map[string]float64{}}
	if slices.ContainsFunc(o.peers, func(p *peer) bool { return p.name == "resqued" }) {
		if b.daemon, err = daemonProgram(ctx, o.daemon, dir); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(o.peers, func(p *peer) bool { return p.postgres }) {
		if b.pg, err = startPostgres(ctx); err != nil {
			return err
		}
		defer b.pg.stop()
	}
	rep := newReport(ctx, o)
	began := time.Now()
	var turns []*turn
	last := 0
	for i := range o.scenarios {
		t := newTurn(ctx, &o.scenarios[i], o, rep)
		turns, last = append(turns, t), max(last, t.to)
	}
	for round := 0; round <= last; round++ {
		for _, t := range turns {
			if round < t.from || round > t.to {
				continue
			}
			if err := b.round(ctx, t, round, rep); err != nil {
				return err
			}
			line := fmt.Sprintf("round %d", round)
			if round == t.to {
				line = rep.line(t.scenario)
			}
			fmt.Fprintf(os.Stderr, "%4.0f s  %-18s %s\n", time.Since(began).Seconds(), t.scenario.Name, line)
		}
	}
	rep.Took = time.Since(began).Round(time.Second).String()
	return rep.write(o.out)
}

// turn is a scenario with its peers, in a range of rounds. Round 0 warms up and determines the
// number of jobs.
type turn struct {
	scenario *scenario
	peers    []*peer
	from, to int
}

func newTurn(ctx context.Context, s *scenario, o *options, rep *report) *turn {
	t := &turn{scenario: s, to: o.rounds}
	switch {
	case (s.Kind == kindIdle || s.Kind == kindFleet) && o.short:
		t.from, t.to = 1, 1
	case s.Kind == kindLatency || s.Kind == kindIdle || s.Kind == kindFleet:
		t.from = 1
	}
	for _, p := range o.peers {
		why := ""
		switch {
		case s.Kind == kindFleet && p.name != "resqued":
			continue
		case s.Kind == kindFleet:
			why = noFleet(ctx)
		default:
			why = p.skip(s)
		}
		if why != "" {
			rep.skip(s, p, why)
			continue
		}
		t.peers = append(t.peers, p)
	}
	return t
}

func (b *bench) round(ctx context.Context, t *turn, round int, rep *report) error {
	s := t.scenario
	for _, p := range slices.Clone(t.peers) {
		r, err := b.measure(ctx, s, p, round)
		// A warm-up that was too short says little about the number of jobs.
		for tries := 0; round == 0 && err == nil && tries < 3 && r.Seconds < b.o.window.Seconds()/3; tries++ {
			r, err = b.measure(ctx, s, p, round)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && p.name == "resqued":
			return err
		case err != nil:
			// A peer that fails is left out, and the report says so.
			fmt.Fprintln(os.Stderr, "bench:", err)
			rep.skip(s, p, errors.Unwrap(err).Error())
			rep.forget(s, p)
			t.peers = slices.DeleteFunc(t.peers, func(q *peer) bool { return q == p })
		case round > 0:
			rep.Results = append(rep.Results, r)
		}
	}
	return nil
}
