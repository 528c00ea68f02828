package pages_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

// TestSize: the pages of a large fleet stay small, since each shows a part of its list.
func TestSize(t *testing.T) {
	t.Parallel()
	s := &view.Snapshot{At: time.Now()}
	for i := range 2000 {
		n, old := int64(i*5003%100_000), int64(i)
		s.Queues = append(s.Queues, &view.Queue{
			Queue: fmt.Sprintf("queue-%04d", i), State: view.QueueRuns, Size: &n, OldestS: &old, Busy: i % 9, Served: 80000,
			Why: "no free thread: 80000 of 80000 are busy", Servers: []view.QueueServer{{Worker: "a"}, {Worker: "b"}},
		})
	}
	for i := range 5000 {
		host := fmt.Sprintf("host-%03d", i/32)
		if i%8 == 0 {
			s.Workers = append(s.Workers, &view.Worker{Worker: fmt.Sprintf("%s:%d", host, 1000+i), Kind: view.KindResqued, State: "running", Host: host, Queues: "queue-*", Threads: 128})
		}
		w := s.Workers[len(s.Workers)-1]
		left := 500 - i%500
		p := view.Process{Proc: fmt.Sprintf("%s:%d", w.Worker, i), PID: 10_000 + i, Slot: i % 8, State: "running", Threads: 16, Busy: 1, Done: i % 500, Limit: 500, RecycleIn: &left, RSS: int64(i%200) << 20}
		p.Jobs = []view.ThreadJob{{ID: fmt.Sprintf("%020x", i*7919), Class: "Report", Args: json.RawMessage(fmt.Sprintf(`[%d,"monthly"]`, i)), Queue: fmt.Sprintf("queue-%04d", i%2000), RunningS: int64(i)}}
		w.Processes = append(w.Processes, p)
		s.Jobs = append(s.Jobs, &view.Job{ID: p.Jobs[0].ID, Name: p.Jobs[0].ID, Short: p.Jobs[0].ID, Class: "Report", Args: p.Jobs[0].Args, Queue: p.Jobs[0].Queue, State: view.JobRuns, Worker: w.Worker, Started: s.At.Add(-time.Duration(i) * time.Second)})
	}
	sampled := &pages.Sampled{Queues: pages.Read(s.Queues, s.At), Workers: pages.Read(s.Workers, s.At), Jobs: pages.Read(s.Jobs, s.At), Stats: pages.Read(&view.Stats{}, s.At), Findings: pages.Read([]view.Finding{}, s.At), Trends: pages.NewTrends()}
	begun := time.Now()
	for range 60 {
		again := *s
		again.At = again.At.Add(2 * time.Second)
		sampled.Trends.Add(&again)
	}
	added := time.Since(begun) / 60
	f := pages.Frame{Operator: true, Now: s.At}
	for name, make := range map[string]func() pages.Page{
		"overview": func() pages.Page { return pages.OverviewOf(f, sampled) },
		"queues":   func() pages.Page { return pages.QueuesOf(f, sampled, nil) },
		"queue":    func() pages.Page { return pages.QueueOf(f, sampled, "queue-0007") },
		"jobs":     func() pages.Page { return pages.JobsOf(f, sampled, nil, pages.Filter{}, new(filter.Matcher)) },
		"workers":  func() pages.Page { return pages.WorkersOf(f, sampled, nil) },
	} {
		begun := time.Now()
		html := render(t, make())
		took := time.Since(begun)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write([]byte(html))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		t.Logf("%s: %d bytes, %d packed, made in %s", name, len(html), packed.Len(), took.Round(time.Millisecond))
		assert.Less(t, packed.Len(), 15<<10, name)
	}
	t.Logf("a sample is added to the trends in %s", added.Round(10*time.Microsecond))
}
