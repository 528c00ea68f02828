package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const method = `Jobs wait in the queue, then the workers start. The clock runs from the beginning
of the first job to the end of the last one, by the handlers' own count, so that
the start of processes does not count for any peer. Every job has two arguments, which its handler
gets decoded. A job of 1 ms waits for a timer of the kernel, as it would for an answer; one that
calls time.Sleep takes longer where a Go program idles. Each measurement of a Redis peer has a fresh redis-server on loopback TCP, without
persistence; River has one PostgreSQL for the run, on a unix socket, its tables
emptied and analyzed before each. Processor time comes from the clocks of the
processes; commands include those inside of scripts (for River they are transactions); reads are the
server's reads from sockets, about one for a round trip. In each round every peer has its turn. Figures are
medians (lowest–highest); ratios are medians of the ratios within a round. resqued
runs as the daemon, master and worker processes, with its defaults: job locks,
in-flight records, starvation guard; the daemon is a separate program, built as
releases are, because it is started again for every worker process.
`

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Bench\n\n%d rounds, %s", r.Rounds, r.Took)
	if r.Short {
		b.WriteString(", a short run: too few and too brief for more than a first look")
	}
	b.WriteString(".\n\n")
	for _, key := range slices.Sorted(maps.Keys(r.Machine)) {
		fmt.Fprintf(&b, "- %s: %s\n", key, r.Machine[key])
	}
	b.WriteString(r.stolen())
	b.WriteString("\n" + method + "\n")
	r.targets(&b)
	r.ratios(&b)
	if slices.ContainsFunc(r.scenarios, func(s scenario) bool { return s.Kind == kindFleet }) {
		r.fleets(&b)
	}
	for i := range r.scenarios {
		r.scenario(&b, &r.scenarios[i])
	}
	return b.String()
}

// stolen describes how much processor time a hypervisor gave to others. That costs a peer that
// waits for another process with each job more than one that keeps all processors busy.
func (r *report) stolen() string {
	var shares []float64
	for _, m := range r.Results {
		if m.Rate > 0 {
			shares = append(shares, 100*m.Stolen)
		}
	}
	return fmt.Sprintf("- processor time that a hypervisor gave to others meanwhile: %.1f %% (in half of the measurements %.1f–%.1f %%)\n",
		quantile(shares, 0.5), quantile(shares, 0.25), quantile(shares, 0.75))
}

// ratios writes the table of resqued's rate divided by that of each peer.
func (r *report) ratios(b *strings.Builder) {
	b.WriteString("## resqued over each peer, jobs/s\n\n")
	head, line := []string{"scenario", "resqued, jobs/s"}, []string{"---", "--:"}
	var others []*peer
	for _, p := range r.peers {
		if p.name != "resqued" {
			others = append(others, p)
			head, line = append(head, "÷ "+p.title), append(line, "--:")
		}
	}
	b.WriteString(row(head...) + row(line...))
	for _, s := range r.scenarios {
		own := r.spread(s.Name, "resqued", rate)
		if own.Median == 0 {
			continue
		}
		cells := []string{s.Title, own.String()}
		for _, p := range others {
			cell := "–"
			if ratio := r.ratio(s.Name, "resqued", s.Name, p.name, rate); ratio.Median > 0 {
				cell = human(ratio.Median) + " ×"
			}
			cells = append(cells, cell)
		}
		b.WriteString(row(cells...))
	}
	b.WriteString("\n")
}

func (r *report) scenario(b *strings.Builder, s *scenario) {
	if s.Kind == kindFleet && len(r.of(s.Name, "resqued")) > 0 {
		return // its row is in one table with the others
	}
	fmt.Fprintf(b, "## %s: %s\n\n", s.Name, s.Title)
	switch s.Kind {
	case kindLatency:
		b.WriteString(row("peer", "p50 ms", "p99 ms", "max ms", "samples") + row("---", "--:", "--:", "--:", "--:"))
	case kindIdle:
		b.WriteString(row("peer", "commands/s", "worker CPU ms/s", "server CPU ms/s", "memory of a worker process, MiB", "of all, MiB") +
			row("---", "--:", "--:", "--:", "--:", "--:"))
	default:
		b.WriteString(row("peer", "jobs/s", "jobs/min", "worker CPU ms/1,000", "server CPU ms/1,000", "commands/job", "reads/job", "bytes/job", "peak MiB (all)") +
			row("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:"))
	}
	for _, p := range r.peers {
		of := func(figure func(*result) float64) spread { return r.spread(s.Name, p.name, figure) }
		if len(r.of(s.Name, p.name)) == 0 {
			continue
		}
		commands, memory := of(func(m *result) float64 { return m.Commands }), of(func(m *result) float64 { return m.Memory })
		all := of(func(m *result) float64 { return m.MemoryAll })
		switch s.Kind {
		case kindLatency:
			l := r.pooled(s.Name, p.name)
			b.WriteString(row(p.title, human(quantile(l, 0.5)), human(quantile(l, 0.99)), human(quantile(l, 1)), fmt.Sprint(len(l))))
		case kindIdle:
			b.WriteString(row(p.title, commands.String(), of(workerCPU).String(), of(serverCPU).String(), human(memory.Median), human(all.Median)))
		default:
			b.WriteString(row(p.title, of(rate).String(), human(of(rate).Median*60), human(of(workerCPU).Median), human(of(serverCPU).Median),
				human(commands.Median), human(of(func(m *result) float64 { return m.Reads }).Median),
				human(of(func(m *result) float64 { return m.Bytes }).Median), human(memory.Median)+" ("+human(all.Median)+")"))
		}
	}
	b.WriteString("\n")
	// Peers left out for the same reason share a line.
	reasons := map[string][]string{}
	var order []string
	for _, skip := range r.Skipped {
		if skip.Scenario == s.Name {
			if reasons[skip.Why] == nil {
				order = append(order, skip.Why)
			}
			reasons[skip.Why] = append(reasons[skip.Why], skip.Peer)
		}
	}
	for _, why := range order {
		fmt.Fprintf(b, "Left out: %s (%s).\n", strings.Join(reasons[why], ", "), why)
	}
	if len(order) > 0 {
		b.WriteString("\n")
	}
}
