package pages_test

import (
	"fmt"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

func sampled(queues, procs int) *pages.Sampled {
	at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	s := &view.Snapshot{At: at}
	for i := range queues {
		n := int64(i)
		s.Queues = append(s.Queues, &view.Queue{Queue: fmt.Sprintf("q%04d", i), State: view.QueueRuns, Size: &n})
	}
	for i := range procs {
		name := fmt.Sprintf("host%d:%d", i/20, 100+i/10)
		if i%10 == 0 {
			s.Workers = append(s.Workers, &view.Worker{Worker: name, Kind: view.KindResqued, State: "running", Host: fmt.Sprintf("host%d", i/20)})
		}
		w := s.Workers[len(s.Workers)-1]
		w.Processes = append(w.Processes, view.Process{Proc: fmt.Sprintf("p%d", i), PID: i, Slot: i % 10})
	}
	return &pages.Sampled{Queues: pages.Read(s.Queues, at), Workers: pages.Read(s.Workers, at), Jobs: pages.Read(s.Jobs, at), Stats: pages.Read(&view.Stats{}, at), Trends: pages.NewTrends()}
}

func query(s string) url.Values {
	v, err := url.ParseQuery(s)
	if err != nil {
		panic(err)
	}
	return v
}

func TestQueuesOf(t *testing.T) {
	t.Parallel()
	s := sampled(250, 0)
	names := func(q string) (names []string, p *pages.Queues) {
		p = pages.QueuesOf(pages.Frame{}, s, query(q))
		for _, r := range p.Rows.Data {
			names = append(names, r.Queue.Queue)
		}
		return names, p
	}
	all, p := names("")
	require.Len(t, all, 100)
	assert.Equal(t, "q0249", all[0], "the longest first")
	assert.Equal(t, "1–100 of 250", p.Pager.Text)
	assert.Equal(t, "/queues?from=100", string(p.Pager.Next))
	all, p = names("sort=name&from=200&name=Q")
	assert.Equal(t, "q0200", all[0])
	assert.Equal(t, "/queues?from=100&name=Q&sort=name", string(p.Pager.Prev))
	assert.Empty(t, p.Pager.Next)
	all, _ = names("name=q024&sort=name")
	assert.Len(t, all, 10)
	all, _ = names("from=99999")
	assert.Len(t, all, 50, "behind the end is the last page")
	all, _ = names("from=-7")
	assert.Len(t, all, 100)
	all, _ = names("state=orphan")
	assert.Empty(t, all)
}

func TestWorkersOf(t *testing.T) {
	t.Parallel()
	s := sampled(0, 130)
	p := pages.WorkersOf(pages.Frame{}, s, query("from=60"))
	count := 0
	for _, h := range p.Hosts.Data {
		for _, m := range h.Masters {
			count += len(m.Rows)
			assert.Equal(t, h.Host, m.Host)
		}
	}
	assert.Equal(t, 60, count)
	assert.Equal(t, 130, p.Processes)
	assert.Equal(t, "61–120 of 130", p.Pager.Text)
	require.NotNil(t, pages.WorkerOf(pages.Frame{}, s, "host0:100"))
	require.Nil(t, pages.WorkerOf(pages.Frame{}, s, "host0:9"))
}

// TestUnread: what was never read has its reason on every page.
func TestUnread(t *testing.T) {
	t.Parallel()
	s := &pages.Sampled{Queues: pages.Widget[[]*view.Queue]{Err: assert.AnError}, Workers: pages.Widget[[]*view.Worker]{Err: assert.AnError}, Jobs: pages.Widget[[]*view.Job]{Err: assert.AnError}, Stats: pages.Widget[*view.Stats]{Err: assert.AnError}, Findings: pages.Widget[[]view.Finding]{Err: assert.AnError}, Trends: pages.NewTrends()}
	job, err := pages.JobOf(pages.Frame{}, s, "x")
	require.NoError(t, err)
	for _, p := range []pages.Page{
		pages.OverviewOf(pages.Frame{}, s), pages.QueuesOf(pages.Frame{}, s, nil), pages.QueueOf(pages.Frame{}, s, "x"), pages.JobsOf(pages.Frame{}, s, nil, pages.Filter{}, nil),
		job, pages.WorkersOf(pages.Frame{}, s, nil), pages.WorkerOf(pages.Frame{}, s, "x"),
	} {
		assert.Contains(t, render(t, p), "Cannot be shown:</b> "+assert.AnError.Error())
	}
}

func TestTrends(t *testing.T) {
	t.Parallel()
	trends := pages.NewTrends()
	at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	for i := range 200 {
		n := int64(i)
		trends.Add(&view.Snapshot{
			At: at.Add(time.Duration(i) * 2 * time.Second), Processed: n * 20, Failed: n,
			Queues:  []*view.Queue{{Queue: "mail", Size: &n}},
			Workers: []*view.Worker{{Processes: []view.Process{{Proc: "p", RSS: n, Done: i / 5 * 50, Beat: at.Add(time.Duration(i/5) * 10 * time.Second)}}}},
		})
	}
	flow := trends.Flow()
	require.True(t, flow.Any())
	require.Len(t, flow.Series[0].Values, 120)
	assert.InDelta(t, 10, flow.Series[0].Values[100], .001)
	assert.Equal(t, 10*time.Minute, flow.To().Sub(flow.From))
	assert.True(t, flow.To().After(at.Add(398*time.Second)))
	length := trends.Length("mail").Series[0].Values
	assert.InDelta(t, 199, length[119], 2)
	assert.InDelta(t, 149, length[99], 3)
	assert.True(t, math.IsNaN(length[10]), "that was before the samples that are remembered")
	assert.Len(t, trends.Queue("mail"), 120)
	assert.InDelta(t, 199, trends.Queue("mail")[119], .001)
	require.NotNil(t, trends.Rate("p"))
	assert.InDelta(t, 5, *trends.Rate("p"), .001, "its count moves with its beats only")
	assert.Nil(t, trends.Queue("none"))
	assert.Nil(t, trends.Rate("none"))
	// A counter that was set back is not known, rather than below 0.
	trends.Add(&view.Snapshot{At: at.Add(time.Hour)})
	assert.True(t, math.IsNaN(trends.Flow().Series[0].Values[119]))
	assert.False(t, trends.Length("none").Any())
}
