package main

import (
	"fmt"
	"math"
	"strings"
)

// bar is one bar of a plot, with the lowest and the highest value as a whisker.
type bar struct {
	label  string
	colour string
	value  spread
}

// group is a group of bars under a common title.
type group struct {
	title string
	bars  []bar
}

const (
	plotWidth  = 860
	labelWidth = 210
	barHeight  = 18
	groupGap   = 34
)

// plot draws groups of horizontal bars. It uses no script, no font of its own, and a medium
// grey that is readable on light and dark pages.
func plot(title, unit string, logarithmic bool, groups []group) string {
	highest, lowest := 0.0, math.Inf(1)
	height := 50
	for _, g := range groups {
		height += groupGap + len(g.bars)*barHeight
		for _, b := range g.bars {
			highest = math.Max(highest, b.value.Max)
			if b.value.Min > 0 {
				lowest = math.Min(lowest, b.value.Min)
			}
		}
	}
	if highest == 0 {
		return ""
	}
	width := float64(plotWidth - labelWidth - 110)
	at := func(v float64) float64 { return width * v / highest }
	if logarithmic {
		floor := math.Pow(10, math.Floor(math.Log10(lowest)))
		at = func(v float64) float64 {
			return math.Max(0, width*math.Log(v/floor)/math.Log(highest/floor))
		}
		unit += ", logarithmic"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#777" role="img" aria-label="%s">`+"\n",
		plotWidth, height, escape(title))
	fmt.Fprintf(&b, `<text x="8" y="22" font-size="16" font-weight="bold">%s</text><text x="%d" y="22" text-anchor="end">%s</text>`+"\n",
		escape(title), plotWidth-8, escape(unit))
	y := 40
	for _, g := range groups {
		y += groupGap - 12
		fmt.Fprintf(&b, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y-4, escape(g.title))
		for _, bar := range g.bars {
			mid := float64(y) + barHeight/2
			fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, labelWidth-8, mid+4, escape(bar.label))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y+2, math.Max(at(bar.value.Median), 1), barHeight-4, bar.colour)
			fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#777" stroke-width="2"/>`, labelWidth+at(bar.value.Min), mid, labelWidth+at(bar.value.Max))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", labelWidth+at(bar.value.Max)+6, mid+4, human(bar.value.Median))
			y += barHeight
		}
		y += 12
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

var colours = map[string]string{
	"resqued": "#d1495b", "asynq": "#30638e", "river": "#7d5ba6", "river-best": "#a98fc6",
	"gocraft": "#3a7d44", "goworker": "#c98b1b", "raw": "#9a9a9a", "redis-benchmark": "#bcbcbc", "spawn": "#9a9a9a",
}

// plots returns the pictures of the report by file name.
func (r *report) plots() map[string]string {
	bars := func(name string, figure func(*result) float64) (all []bar) {
		for _, p := range r.peers {
			if s := r.spread(name, p.name, figure); s.Median > 0 {
				all = append(all, bar{p.title, colours[p.name], s})
			}
		}
		return all
	}
	groups := func(figure func(*result) float64, names ...string) (all []group) {
		for _, s := range r.scenarios {
			for _, name := range names {
				if s.Name == name && len(r.of(name, "resqued")) > 0 {
					all = append(all, group{s.Title, bars(name, figure)})
				}
			}
		}
		return all
	}
	var latency group
	latency.title = "p50, as far as p99"
	for _, p := range r.peers {
		if l := r.pooled("latency", p.name); len(l) > 0 {
			p50 := quantile(l, 0.5)
			latency.bars = append(latency.bars, bar{p.title, colours[p.name], spread{p50, p50, quantile(l, 0.99)}})
		}
	}
	var shape group
	shape.title = "50 threads or what the name says"
	for _, s := range r.scenarios {
		if own := r.spread(s.Name, "resqued", rate); s.Kind == kindDrain && own.Median > 0 && !s.Command {
			shape.bars = append(shape.bars, bar{s.Name, colours["resqued"], own})
		}
	}
	both := func(m *result) float64 { return m.WorkerCPU + m.ServerCPU }
	all := map[string]string{
		"throughput.svg": plot("No-op jobs", "jobs/s", false, groups(rate, "noop-1", "noop-10", "noop-50", "procs-2", "procs-4")),
		"load.svg":       plot("Other jobs", "jobs/s", false, groups(rate, "queues-10", "wait-1ms", "payload-1k", "payload-100k")),
		"cpu.svg":        plot("Processor time, workers and server", "ms for 1,000 jobs", false, groups(both, "noop-1", "noop-10", "noop-50")),
		"enqueue.svg":    plot("Enqueue", "jobs/s", true, groups(rate, "enqueue-1", "enqueue-10", "enqueue-100", "enqueue-bulk")),
		"latency.svg":    plot("From enqueue to start, idle", "ms", true, []group{latency}),
		"shape.svg":      plot("resqued in every scenario", "jobs/s", false, []group{shape}),
	}
	for name, text := range all {
		if text == "" {
			delete(all, name)
		}
	}
	return all
}
