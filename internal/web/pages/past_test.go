package pages

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func point(at time.Duration, runs int64) view.Point {
	return view.Point{At: noon.Add(at), Tally: view.Tally{Runs: runs, Failed: runs / 2}}
}

// A step that is not over counts for as much of it as has passed, or not at all.
func TestFlowOf(t *testing.T) {
	t.Parallel()
	minutes := FlowOf([]view.Point{point(-2*time.Minute, 60), point(-time.Minute, 30), point(0, 7)}, time.Minute, noon.Add(10*time.Second))
	values := minutes.Series[0].Values
	require.Equal(t, "/min", minutes.Unit)
	require.InDelta(t, 60, values[0], 0.01)
	require.True(t, math.IsNaN(values[1]), "the last ten seconds of it may not have been written yet")
	require.True(t, math.IsNaN(values[2]))
	require.InDelta(t, 30, minutes.Series[1].Values[0], 0.01)

	hours := FlowOf([]view.Point{point(-time.Hour, 3600), point(0, 500)}, time.Hour, noon.Add(30*time.Minute+late))
	require.Equal(t, "/h", hours.Unit)
	require.InDelta(t, 3600, hours.Series[0].Values[0], 0.01)
	require.InDelta(t, 1000, hours.Series[0].Values[1], 0.01)

	fives := FlowOf([]view.Point{point(-5*time.Minute, 100)}, 5*time.Minute, noon.Add(time.Minute))
	require.InDelta(t, 20, fives.Series[0].Values[0], 0.01, "per minute")
	require.False(t, FlowOf(nil, time.Minute, noon).Any())

	young := FlowOf([]view.Point{point(-2*time.Minute, 0), point(-time.Minute, 0), point(0, 72)}, time.Minute, noon.Add(10*time.Second))
	require.False(t, young.Any(), "what has run is not drawn yet, and a line at 0 would deny it")
	require.NotEmpty(t, young.Empty)
}

func TestLengthOf(t *testing.T) {
	t.Parallel()
	level := func(at time.Duration, jobs int64) view.Level { return view.Level{At: noon.Add(at), Jobs: jobs} }
	c := LengthOf([]view.Level{level(-10*time.Minute, 4), level(-9*time.Minute, 9), level(-5*time.Minute, 0), level(0, 0)}, 5*time.Minute, noon)
	require.Equal(t, 9.0, c.Series[0].Values[0], "the most of its minutes")
	require.Equal(t, 0.0, c.Series[0].Values[1])
	require.True(t, math.IsNaN(c.Series[0].Values[2]), "nobody has looked yet")
	require.False(t, LengthOf(nil, time.Minute, noon).Any())
}

func TestTimesOf(t *testing.T) {
	t.Parallel()
	half, most := 250.0, 4000.0
	p := point(-10*time.Minute, 1)
	p.P50, p.P95 = &half, &most
	c := TimesOf([]view.Point{p, point(-5*time.Minute, 0)}, 5*time.Minute, noon.Add(time.Hour))
	require.Equal(t, 4.0, c.Series[0].Values[0])
	require.Equal(t, 0.25, c.Series[1].Values[0])
	require.True(t, math.IsNaN(c.Series[0].Values[1]), "nothing ran")
}

func TestClassRows(t *testing.T) {
	t.Parallel()
	steps := make([]int64, 288)
	for i := range steps {
		steps[i] = 1
	}
	spark := squeeze(steps)
	require.LessOrEqual(t, len(spark), sparkSteps)
	sum := 0.0
	for _, v := range spark {
		sum += v
	}
	require.Equal(t, 288.0, sum)
	require.Equal(t, 12500*time.Microsecond, millis(new(12.5)))
	require.Zero(t, millis(nil))
	rows := []view.Class{{Class: "b", Tally: view.Tally{Runs: 2, Failed: 2}}, {Class: "a", Tally: view.Tally{Runs: 9}, Share: .1}}
	for by, first := range map[string]string{"name": "a", "runs": "a", "failed": "b", "time": "a", "nonsense": "a"} {
		SortClasses(rows, by)
		require.Equal(t, first, rows[0].Class, by)
	}
}

// Jobs come and go at the rates of about a minute.
func TestRates(t *testing.T) {
	t.Parallel()
	tr := NewTrends()
	in, out := tr.Rates("mail")
	require.Nil(t, in)
	require.Nil(t, out)
	for i := range 20 {
		size := int64(100 + 10*i)
		at := noon.Add(time.Duration(i) * 10 * time.Second)
		tr.Add(&view.Snapshot{At: at, Queues: []*view.Queue{{Queue: "mail", Size: &size}, {Queue: "other", Size: &size}}})
		tr.AddRuns(at, map[string]int64{"mail": int64(1000 + 50*i)})
	}
	in, out = tr.Rates("mail")
	require.InDelta(t, 5, *out, 0.001)
	require.InDelta(t, 6, *in, 0.001, "those that were taken, and those by which it has grown")
	in, out = tr.Rates("other")
	require.Nil(t, in, "nobody has counted it")
	require.Nil(t, out)
	require.LessOrEqual(t, len(tr.flows), flowsKept)
	// Counts that were thrown away give no rate.
	tr.AddRuns(noon.Add(time.Hour), map[string]int64{"mail": 3})
	in, out = tr.Rates("mail")
	require.Nil(t, in)
	require.Nil(t, out)
}

// The start of a job is listed among its events.
func TestJobEvents(t *testing.T) {
	t.Parallel()
	p := &Job{Events: []view.Event{{ID: "2", At: noon.Add(time.Minute), Kind: "killed"}, {ID: "1", At: noon.Add(-time.Minute), Kind: "died"}}}
	p.Job = Read(&view.Job{Queue: "mail", Started: noon}, noon)
	var kinds []string
	for _, e := range p.EventList().Rows {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []string{"killed", "started", "died"}, kinds)
	require.Len(t, p.Events, 2)
}

// A queue whose jobs are all locked is explained on the page of locks.
func TestAttentionLeadsToLocks(t *testing.T) {
	t.Parallel()
	found := NeedsAttention([]view.Finding{
		{Check: "queues", Status: view.FindingWarn, Text: "sync: 3 jobs wait, all of them locked", Fix: "locks waiting", Command: true},
		{Check: "queues", Status: view.FindingWarn, Text: "mail: paused", Fix: "queues resume mail", Command: true},
	})
	require.Equal(t, "locks", found[0].View)
	require.Equal(t, "queues", found[1].View)
}

// Events explain why a process leaves, and how its predecessor in the slot ended.
func TestRecall(t *testing.T) {
	t.Parallel()
	events := []view.Event{
		{Kind: "recycled", Subject: "vm:1:20-3:0.7", Text: "for its memory, after 3m and 12 jobs, with 900 MB", At: noon.Add(-time.Second)},
		{Kind: "died", Subject: "vm:1:20-3:1.4", Text: "worker process: signal 9, after 5 jobs", At: noon.Add(-time.Minute)},
		{Kind: "died", Subject: "vm:1:20-3:1.2", Text: "worker process: exit code 2", At: noon.Add(-2 * time.Minute)},
		{Kind: "died", Subject: "vm:1:20-3:2.2", Text: "worker process: long ago", At: noon.Add(-2 * time.Hour)},
	}
	row := func(proc string) ProcessRow { return ProcessRow{Process: view.Process{Proc: proc}} }
	m := WorkerMaster{Rows: []ProcessRow{row("vm:1:20-3:0.7"), row("vm:1:20-3:1.8"), row("vm:1:20-3:2.9"), row("vm:1:21-3:1.9"), row("vm:1:20-3:1.3")}}
	m.Recall(events, noon)
	require.Equal(t, "memory", m.Rows[0].Why)
	require.Empty(t, m.Rows[0].Last)
	require.Equal(t, "1m ago: died, signal 9, after 5 jobs", m.Rows[1].Last)
	require.Empty(t, m.Rows[2].Last, "too long ago")
	require.Empty(t, m.Rows[3].Last, "another master")
	require.Equal(t, "2m ago: died, exit code 2", m.Rows[4].Last, "the newer one came after it")
}
