package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// run measures everything, round by round: in each every peer has its turn, because
// the machine itself is faster in some minutes than in others.
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
	if slices.ContainsFunc(o.peers, func(p *peer) bool { return p.postgres }) {
		if b.pg, err = startPostgres(ctx); err != nil {
			return err
		}
		defer b.pg.stop()
	}
	rep := newReport(ctx, o)
	began := time.Now()
	for i := range o.scenarios {
		s := &o.scenarios[i]
		var here []*peer
		for _, p := range o.peers {
			if why := p.skip(s); why != "" {
				rep.skip(s, p, why)
				continue
			}
			here = append(here, p)
		}
		if err := b.rounds(ctx, s, here, rep); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%4.0f s  %-18s %s\n", time.Since(began).Seconds(), s.Name, rep.line(s))
	}
	rep.Took = time.Since(began).Round(time.Second).String()
	return rep.write(o.out)
}

func (b *bench) rounds(ctx context.Context, s *scenario, all []*peer, rep *report) error {
	from, to := 0, b.o.rounds // round 0 warms up and finds out how many jobs it takes
	switch {
	case s.Kind == kindIdle && b.o.short:
		from, to = 1, 1
	case s.Kind == kindLatency || s.Kind == kindIdle:
		from = 1
	}
	for round := from; round <= to; round++ {
		for _, p := range slices.Clone(all) {
			r, err := b.measure(ctx, s, p, round)
			// A warm-up that was too brief says little about how many jobs it takes.
			for tries := 0; round == 0 && err == nil && tries < 3 && r.Seconds < b.o.window.Seconds()/3; tries++ {
				r, err = b.measure(ctx, s, p, round)
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil && p.name == "resqued":
				return err
			case err != nil:
				// A peer that cannot do it is left out, and the report says so.
				fmt.Fprintln(os.Stderr, "bench:", err)
				rep.skip(s, p, errors.Unwrap(err).Error())
				rep.forget(s, p)
				all = slices.DeleteFunc(all, func(q *peer) bool { return q == p })
			case round > 0:
				rep.Results = append(rep.Results, r)
			}
		}
	}
	return nil
}
