package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// interval is resqued's default INTERVAL.
const interval = 100 * time.Millisecond

type goal struct {
	title   string
	figure  func(r *report) float64 // 0 = not measured in this run
	limit   float64
	atMost  bool // otherwise at least
	percent bool
	unit    string
}

func goals() []goal {
	// over returns the ratio to the best of the peers, if all of them were measured.
	over := func(scenario string, peers ...string) func(r *report) float64 {
		return func(r *report) float64 {
			least := math.Inf(1)
			for _, p := range peers {
				least = min(least, r.ratio(scenario, "resqued", scenario, p, rate).Median)
			}
			return least
		}
	}
	within := func(scenario, base string) func(r *report) float64 {
		return func(r *report) float64 { return r.ratio(scenario, "resqued", base, "resqued", rate).Median }
	}
	share := func(figure func(*result) float64) func(r *report) float64 {
		return func(r *report) float64 {
			return r.ratio("noop-50", "resqued", "noop-50", "asynq", figure).Median
		}
	}
	ofIdeal := func(scenario string) func(r *report) float64 {
		return func(r *report) float64 { return r.spread(scenario, "resqued", rate).Median / 50000 }
	}
	return []goal{
		{title: "no-op, 50 threads, over asynq", figure: over("noop-50", "asynq"), limit: 8},
		{title: "no-op, 50 threads, over asynq, to aim for", figure: over("noop-50", "asynq"), limit: 10},
		{title: "no-op, 50 threads, over gocraft/work", figure: over("noop-50", "gocraft"), limit: 3},
		{title: "no-op, 50 threads, over River's best", figure: over("noop-50", "river", "river-best"), limit: 5},
		{title: "no-op, 10 threads, over asynq", figure: over("noop-10", "asynq"), limit: 4},
		{title: "no-op, 1 thread, over asynq", figure: over("noop-1", "asynq"), limit: 1.5},
		{title: "10 queues, jobs in the last, of the one-queue rate", figure: within("queues-10", "noop-50"), limit: 0.9, percent: true},
		{title: "1 ms jobs, 50 threads, over asynq", figure: over("wait-1ms", "asynq"), limit: 2},
		{title: "1 ms jobs by time.Sleep, 50 threads, over asynq", figure: over("sleep-1ms", "asynq"), limit: 2},
		{title: "1 ms jobs, 50 threads, of the ideal 50,000/s", figure: ofIdeal("wait-1ms"), limit: 0.6, percent: true},
		{title: "1 ms jobs by time.Sleep, 50 threads, of the ideal 50,000/s", figure: ofIdeal("sleep-1ms"), limit: 0.6, percent: true},
		{title: "server CPU per job, of asynq's", figure: share(serverCPU), limit: 1.0 / 6, atMost: true},
		{title: "worker CPU per job, of asynq's", figure: share(workerCPU), limit: 1.0 / 8, atMost: true},
		{title: "JOBS_PER_FORK 1,000, of no recycling (2 × 5 threads)", figure: within("recycle-2x5-1000", "recycle-2x5-0"), limit: 0.95, percent: true},
		{title: "JOBS_PER_FORK 100, of no recycling (2 × 5 threads)", figure: within("recycle-2x5-100", "recycle-2x5-0"), limit: 0.8, percent: true},
		{title: "JOBS_PER_FORK 1,000, of no recycling (1 × 50 threads)", figure: within("recycle-1x50-1000", "recycle-1x50-0"), limit: 0.95, percent: true},
		{title: "10⁷ waiting jobs, of the base rate", figure: within("depth-1e7", "noop-50"), limit: 0.9, percent: true},
		{title: "a limit that is not reached, of the base rate", figure: within("limit", "noop-50"), limit: 0.7, percent: true},
		{title: "its server CPU per job, of the base", limit: 1.4, atMost: true, figure: func(r *report) float64 {
			return r.ratio("limit", "resqued", "noop-50", "resqued", serverCPU).Median
		}},
		{title: "1,000 queues with jobs, of the base rate", figure: within("queues-1000", "noop-50"), limit: 0.5, percent: true},
		{title: "1,000 queues, jobs in the last, of the base rate", figure: within("queues-1000-last", "noop-50"), limit: 0.5, percent: true},
		{title: "enqueue, 1 goroutine, over asynq", figure: over("enqueue-1", "asynq"), limit: 1},
		{title: "enqueue, 10 goroutines, over asynq", figure: over("enqueue-10", "asynq"), limit: 3},
		{title: "enqueue in bulk, over one by one", figure: within("enqueue-bulk", "enqueue-1"), limit: 20},
		{title: "idle pick-up, p99 ≤ INTERVAL", limit: float64(interval / time.Millisecond), atMost: true, unit: " ms", figure: func(r *report) float64 {
			return quantile(r.pooled("latency", "resqued"), 0.99)
		}},
		{title: "idle pick-up with the waker, p99", limit: 5, atMost: true, unit: " ms", figure: func(r *report) float64 {
			return quantile(r.pooled("latency-waker", "resqued"), 0.99)
		}},
		{title: "no-op Ruby classes, over Sidekiq with as many threads", figure: over("runner-noop", "sidekiq"), limit: 1.2},
		{title: "no-op Active Jobs, over Sidekiq with as many threads", figure: over("runner-active-job", "sidekiq"), limit: 1},
		{title: "no-op Ruby classes, over as many workers of Resque without forks", figure: over("runner-noop", "resque"), limit: 1.5},
		{title: "no-op Ruby classes, over as many workers of Resque", figure: over("runner-noop", "resque-forking"), limit: 30},
		{title: "2 runners of 10 threads, of 20 runners", figure: within("runner-threads", "runner-noop"), limit: 1, percent: true},
		{title: "jobs_per_runner 100, of no recycling", figure: within("runner-recycle", "runner-noop"), limit: 0.8, percent: true},
		{title: "memory of a worker process at rest, 16 threads", limit: 30, atMost: true, unit: " MiB", figure: func(r *report) float64 {
			return r.spread("idle", "resqued", func(m *result) float64 { return m.Memory }).Median
		}},
	}
}

func (r *report) targets(b *strings.Builder) {
	b.WriteString("## Targets\n\n" + row("target", "limit", "measured", "") + row("---", "--:", "--:", "---"))
	for _, g := range goals() {
		v := g.figure(r)
		if v == 0 || math.IsNaN(v) {
			continue
		}
		sign, ok := "≥ ", v >= g.limit
		if g.atMost {
			sign, ok = "≤ ", v <= g.limit
		}
		format := func(v float64) string {
			switch {
			case g.percent:
				return fmt.Sprintf("%.0f %%", v*100)
			case g.unit != "":
				return human(v) + g.unit
			}
			return human(v) + " ×"
		}
		verdict := "**fails**"
		if ok {
			verdict = "passes"
		}
		b.WriteString(row(g.title, sign+format(g.limit), format(v), verdict))
	}
	b.WriteString("\n")
}
