// Package pagestest has the pages of a made-up installation, for tests of their look and of how
// they show foreign texts.
package pagestest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/longjob"
)

// Sample is a page and the path at which it is shown.
type Sample struct {
	// Name is the name of its picture files, Path where it is served.
	Name, Path string
	Page       pages.Page
}

// Now is the time on all samples.
var Now = time.Date(2026, 11, 24, 10, 41, 2, 0, time.UTC)

func ago(d time.Duration) time.Time     { return Now.Add(-d) }
func agoPtr(d time.Duration) *time.Time { t := ago(d); return &t }
func raw(s string) json.RawMessage      { return json.RawMessage(s) }
func read[T any](v T) pages.Widget[T]   { return pages.Read(v, Now) }

// Frame is the frame of the samples.
func Frame(name, title string) pages.Frame {
	return pages.Frame{
		View: name, Title: title, Namespace: "resque", Command: "resqued", Redis: "redis://10.0.3.7:6379/0", User: "operator", Operator: true,
		Now: Now, Refresh: 2 * time.Second,
	}
}

// wave makes values that look like a busy day's, always the same ones.
func wave(n int, mean, swing float64, seed uint32) []float64 {
	values := make([]float64, n)
	for i := range values {
		seed = seed*1664525 + 1013904223
		noise := float64(seed>>8)/float64(1<<24) - .5
		values[i] = max(0, mean+swing*math.Sin(float64(i)/float64(n)*7+float64(seed%3))*.2+swing*math.Sin(float64(i)/9)+noise*swing)
	}
	return values
}

func queue(name, state string, size, oldest int64, busy, cap, served int, why string) *view.Queue {
	q := &view.Queue{Queue: name, State: state, Why: why, Size: &size, Busy: busy, Served: served}
	if oldest >= 0 {
		q.OldestS, q.OldestSource = &oldest, new(queueage.Exact)
	}
	if cap > 0 {
		q.Cap = &cap
	}
	return q
}

func queues() []pages.QueueRow {
	row := func(q *view.Queue, in, out float64, served string, seed uint32) pages.QueueRow {
		return pages.QueueRow{Queue: q, In: &in, Out: &out, ServedBy: served, Spark: wave(40, float64(*q.Size), float64(*q.Size)/3, seed)}
	}
	mail := queue("mail", view.QueueRuns, 6951, 42, 31, 0, 64, "no free thread: 64 of 64 are busy")
	reports := queue("reports", view.QueueStarved, 12, 251, 1, 16, 16, "waiting for locks: 12 jobs")
	legacy := queue("legacy-import", view.QueueOrphan, 40, 11*3600, 0, 0, 0, "no worker has it among its queues")
	news := queue("newsletter", view.QueuePaused, 1204, -1, 2, 0, 64, "paused by alice@10.0.0.7, for 25m10s more: migration 4711")
	return []pages.QueueRow{
		row(mail, 31.2, 29.8, "3 masters and others", 1), row(news, .4, 0, "3 masters", 2), row(legacy, 0, 0, "", 3),
		row(reports, .1, 0, "web-1", 4), row(queue("thumbnails", view.QueueRuns, 8, 1, 6, 8, 64, ""), 12.1, 12.4, "3 masters", 5),
		row(queue("critical", view.QueueRuns, 3, 0, 4, 0, 64, ""), 12.1, 12.4, "3 masters", 6), row(queue("billing", view.QueueRuns, 0, -1, 0, 4, 64, ""), .02, .02, "3 masters", 7),
		row(queue("search-index", view.QueueRuns, 0, -1, 1, 0, 64, ""), 3.1, 3.1, "3 masters", 8), row(queue("old-exports", view.QueueIdle, 0, -1, 0, 0, 0, ""), 0, 0, "", 9),
	}
}

func job(id, class, args, queue, state, worker string, since time.Duration) *view.Job {
	return &view.Job{
		ID: id, Class: class, Args: raw(args), Queue: queue, State: state, AgeS: int64(since.Seconds()), Worker: worker,
		Started: ago(since), Short: id[:min(len(id), view.ShortID)], Name: id,
	}
}

func jobs() []*view.Job {
	return []*view.Job{
		job("9f1c77aa02bb4c6e8d10", "Import", `["s3://imports/2026-11-24/customers.csv",{"dry_run":false}]`, "reports", view.JobKilled, "web-2~resqued:8800.1.11-0a1b2c:*:,**", 22*time.Minute),
		job("4f2a11dd90124e7fa001", "Report", `[2024,"monthly"]`, "reports", view.JobRuns, "web-1~resqued:4700.0.3-0a1b2c:*:,**", 8*time.Minute+12*time.Second),
		job("ruby-db-1:221", "Newsletter::Deliver", `[991,{"locale":"de"}]`, "newsletter", view.JobForeign, "db-1:221:newsletter,low", 64*time.Second),
		job("a01b00000000000000aa", "Thumbnail", `[{"asset":88121,"sizes":[64,128,256,512,1024],"format":"avif"}]`, "thumbnails", view.JobRuns, "web-1~resqued:4700.0.7-0a1b2c:*:,**", 4*time.Second),
		job("a01b00000000000000ab", "Mail", `[42,"Welcome, and what to do first"]`, "mail", view.JobRuns, "web-3~resqued:101.2.0-0a1b2c:*:,**", 900*time.Millisecond),
		job("a01b00000000000000ac", "Mail", `[43,"Welcome, and what to do first"]`, "mail", view.JobRuns, "web-3~resqued:101.2.1-0a1b2c:*:,**", 500*time.Millisecond),
		job("a01b00000000000000ad", "SearchIndex::Update", `["Product",192201]`, "search-index", view.JobRuns, "web-3~resqued:101.2.2-0a1b2c:*:,**", 300*time.Millisecond),
	}
}

func flow() *pages.Chart {
	const n = 120
	failed := make([]float64, n)
	for i := range failed {
		if i > 70 && i < 84 {
			failed[i] = 6 + float64(i%5)
		}
	}
	return &pages.Chart{
		Title: "Jobs a second", From: ago(10 * time.Minute), Step: 5 * time.Second, Unit: "/s",
		Series: []pages.Series{{Name: "done", Values: wave(n, 56, 14, 11)}, {Name: "failed", Values: failed, Alert: true}},
		Marks:  []pages.Mark{{At: ago(4 * time.Minute), Text: "deploy v1.4.0, 3 masters"}},
	}
}

func events() []view.Event {
	return []view.Event{
		{ID: "9", At: ago(38 * time.Second), Kind: "retried", Text: "failures of Mail: 212 jobs", By: "operator@10.0.3.44"},
		{ID: "8", At: ago(4 * time.Minute), Kind: "killed", Text: "Import 9f1c77aa02bb on web-2:8800", By: "operator@10.0.3.44"},
		{ID: "7", At: ago(11 * time.Minute), Kind: "paused", Text: "queue newsletter: with 1,204 jobs", By: "deploy@web-1", Via: "cli"},
		{ID: "6", At: ago(24 * time.Minute), Kind: "deployed", Text: "v1.4.0 took over on web-1, web-2, web-3"},
		{ID: "5", At: ago(26 * time.Minute), Kind: "died", Text: "process 9102 of web-2:8800 was killed by the kernel (memory): 3 jobs run again"},
		{ID: "4", At: ago(51 * time.Minute), Kind: "recycled", Text: "process 9244 of web-1:4700 for its memory, 1.1G of 1.0G"},
		{ID: "3", At: ago(26 * time.Hour), Kind: "purged", Text: "queue newsletter: with 1,204 jobs", By: "operator@10.0.3.51"},
	}
}

func failures() []view.Failure {
	f := func(id, class, args, queue, exception, message string, since time.Duration) view.Failure {
		return view.Failure{ID: id, List: "failed", Class: class, Args: raw(args), Queue: queue, Exception: exception, Error: message, FailedAt: agoPtr(since), Worker: "web-1~resqued:4700.0.3-0a1b2c:*:,**"}
	}
	list := []view.Failure{
		f("1c0de1c0de1c0de1c0de@311", "Mail", `[8841,"Your invoice"]`, "mail", "Timeout", "smtp.example.net:587: no answer for 30s", 8*time.Second),
		f("2c0de1c0de1c0de1c0de@310", "Mail", `[8840,"Your invoice"]`, "mail", "Timeout", "smtp.example.net:587: no answer for 30s", 9*time.Second),
		f("3c0de1c0de1c0de1c0de@309", "Import", `["s3://imports/2026-11-24/customers.csv",{"dry_run":false,"mapping":{"name":0,"street":1,"zip":2,"city":3,"country":4,"vat":5,"phone":6},"notify":["ops@example.net"]}]`, "reports", "DirtyExit", "killed: its process used 1.4G of 1.0G", 2*time.Hour),
		f("4c0de1c0de1c0de1c0de@308", "Newsletter::Deliver", `[17,{"locale":"fr"}]`, "newsletter", "ActiveRecord::RecordNotFound", "Couldn't find Subscriber with 'id'=17", 3*time.Hour),
	}
	list[1].RetriedAt = "2026/11/24 10:40:58"
	list[2].Attempts = 3
	return list
}

func process(pid, slot int, state string, busy, threads int, rss int64, done, limit int, jobs ...view.ThreadJob) view.Process {
	in := limit - done
	return view.Process{
		Proc: fmt.Sprintf("web-1:4700:%d:%d", slot, pid), PID: pid, Slot: slot, State: state, Busy: busy, Threads: threads, RSS: rss,
		Done: done, Limit: limit, RecycleIn: &in, Version: "v1.4.0", Jobs: jobs, BeatS: 3,
	}
}

func hosts() []pages.WorkerHost {
	one := process(9120, 0, "running", 12, 16, 212<<20, 412, 500,
		view.ThreadJob{ID: "4f2a11dd90124e7fa001", Class: "Report", Args: raw(`[2024,"monthly"]`), Queue: "reports", Thread: 3, RunningS: 492, OnDeath: "fails: death 3 of 3"},
		view.ThreadJob{ID: "a01b00000000000000aa", Class: "Thumbnail", Args: raw(`[{"asset":88121}]`), Queue: "thumbnails", Thread: 7, RunningS: 0, OnDeath: "runs again"})
	one.Runners = []store.RunnerInfo{{Runner: "rails", PID: 9131, State: "ready", Busy: 1, Slots: 1, Jobs: 88, RSS: 188 << 20, Forked: true}, {Runner: "rails", PID: 9140, State: "ready", Busy: 0, Slots: 1, Jobs: 71, RSS: 176 << 20, Forked: true}}
	two := process(9244, 1, "draining", 1, 16, 1140<<20, 388, 500, view.ThreadJob{ID: "9f1c77aa02bb4c6e8d10", Class: "Import", Args: raw(`["s3://imports/2026-11-24/customers.csv",{"dry_run":false}]`), Queue: "reports", Thread: 11, RunningS: 1320, OnDeath: "runs again"})
	alone := process(9400, 4, "running", 1, 1, 88<<20, 0, 1, view.ThreadJob{ID: "bb0011", Class: "Resize", Args: raw(`[12]`), Queue: "thumbnails", Thread: 0, OnDeath: "runs again", RunningS: 2})
	alone.Alone = true
	master := func(name, host string, procs ...view.Process) *view.Worker {
		w := &view.Worker{Worker: name, Kind: view.KindResqued, State: "running", Threads: 16 * len(procs), Queues: "critical,reports:25%,mail,thumbnails:8,*", Host: host, Version: "v1.4.0", Config: "b1946ac92492", BeatS: new(int64(1)), Processes: procs}
		for _, p := range procs {
			w.Busy += p.Busy
		}
		return w
	}
	first := master("web-1:4700", "web-1", one, two)
	first.Templates = []store.TemplateInfo{{Runner: "rails", PID: 4711, State: "ready"}, {Runner: "python", State: "failed", Why: "exit code 1: ModuleNotFoundError: No module named 'thumbs'", Restarts: 4}}
	second := master("web-2:8800", "web-2", process(8810, 0, "running", 16, 16, 301<<20, 122, 500), process(8811, 1, "running", 14, 16, 296<<20, 220, 500), process(8812, 2, "starting", 0, 16, 0, 0, 430))
	second.Version, second.Differs = "v1.3.9", []string{"version"}
	return []pages.WorkerHost{
		{Host: "web-1", Masters: []pages.WorkerMaster{{
			Worker: first, Orders: true,
			Rows:     []pages.ProcessRow{{Process: one, Rate: new(.49), RSSRing: wave(30, 200, 20, 5)}, {Process: two, RSSRing: wave(30, 900, 300, 6), Why: "memory"}},
			Suspects: []pages.ProcessRow{{Process: alone}},
		}}},
		{Host: "web-2", Masters: []pages.WorkerMaster{{Worker: second, Orders: true, Rows: []pages.ProcessRow{
			{Process: second.Processes[0], Rate: new(4.2), RSSRing: wave(30, 300, 10, 7)},
			{Process: second.Processes[1], Rate: new(3.9), RSSRing: wave(30, 290, 10, 8)},
			{Process: second.Processes[2], Last: "4s ago: died, killed by signal 9, after 388 jobs"},
		}}}},
	}
}

func foreign() []*view.Worker {
	return []*view.Worker{
		{Worker: "db-1:221:newsletter,low", Kind: view.KindForeign, State: view.WorkerBusy, Busy: 1, Threads: 1, Queues: "newsletter,low", Job: &view.ThreadJob{Class: "Newsletter::Deliver", Args: raw(`[991,{"locale":"de"}]`), Queue: "newsletter", RunningS: 64}},
		{Worker: "db-1:240:newsletter,low", Kind: view.KindForeign, State: view.WorkerGhost, Threads: 1, Queues: "newsletter,low"},
	}
}

func locks() []*view.Lock {
	l := func(kind, key, state, holder string, age, ttl int64, waiters ...string) *view.Lock {
		v := &view.Lock{Kind: kind, Key: key, State: state, AgeS: &age, Class: "Sync", Args: raw(`[42]`), Queue: "reports"}
		if ttl != 0 {
			v.ExpiresS = &ttl
		}
		v.Info = store.LockInfo{Kind: kind, Key: key, State: state}
		if holder != "" {
			v.Holder = &holder
			v.Info.Job = &store.LockJob{Worker: holder, Class: "Sync"}
		}
		v.Waiting = waiters
		return v
	}
	return []*view.Lock{
		l("locket", "locket:job_locks:Sync[42]", "held", "web-1~resqued:9120.0.3-0a1b2c:*:,**", 492, 31, "reports"), l("locket", "locket:job_locks:Report[2024,\"monthly\"]", "held", "web-1~resqued:9120.0.7-0a1b2c:*:,**", 8, 31),
		l("timeout", "lock:Graph:42", "expired", "web-2~resqued:8800.1.1-0a1b2c:*:,**", 3660, -120, "graphs", "reports"), l("loner", "loner:lock:Export:7", "orphan", "", 172800, 0),
	}
}

// pausedRun is a run that was paused two days ago.
func pausedRun() view.LongJob {
	var slices []view.EndedSlice
	for i := range 6 {
		slices = append(slices, view.EndedSlice{Started: ago(48*time.Hour + time.Duration(6-i)*time.Minute), MS: 15000, Units: 300, Outcome: "yielded", Proc: "web-1~resqued:4700.0.3-0a1b2c:*:,**"})
	}
	return view.LongJob{UUID: "7f2a9c1e-77aa-4bcd-9001-aabbccddeeff", Class: "Migrate", Args: raw(`[8]`), Status: longjob.StatusPaused, Queue: "long", Tenant: "customer-17", Slices: 6, Units: 1811, UnitMS: 88, RanMS: 160000, Steps: []longjob.Step{{Name: "prepare", Finished: true}, {Name: "copy_rows", Done: 1810, Total: 10000, Milliseconds: 159000}}, ETA: new(720.), Created: agoPtr(3 * 24 * time.Hour), Begun: agoPtr(49 * time.Hour), Seen: agoPtr(48 * time.Hour), Paused: agoPtr(48 * time.Hour), Message: "rows of customers", State: map[string]json.RawMessage{"cursor": raw(`{"id":1810,"shard":"a"}`)}, Timeline: slices}
}

func runs() []view.LongJob {
	var slices []view.EndedSlice
	at := ago(19 * time.Minute)
	for i := range 40 {
		s := view.EndedSlice{Started: at, MS: 15000 + int64(i%5)*1000, Units: 300, Outcome: "requeued", Proc: "web-1~resqued:4700.0.3-0a1b2c:*:,**"}
		if i == 21 {
			s.Outcome, s.MS = "died", 8000
		}
		slices = append(slices, s)
		at = at.Add(s.Took() + time.Duration(2+i%7*3)*time.Second)
	}
	return []view.LongJob{
		{UUID: "4f2a9c1e-77aa-4bcd-9001-aabbccddeeff", Class: "Migrate", Args: raw(`[7]`), Status: longjob.StatusRunning, Queue: "long", Slice: 41, Slices: 41, Units: 12311, UnitMS: 88, RanMS: 1082000, Steps: []longjob.Step{{Name: "prepare", Finished: true}, {Name: "copy_rows", Done: 6204, Total: 10000, Milliseconds: 545952}}, ETA: new(660.), Created: agoPtr(21 * time.Minute), Begun: agoPtr(19 * time.Minute), Seen: agoPtr(4 * time.Second), Deaths: 1, Rerun: true, Message: "rows of customers", State: map[string]json.RawMessage{"copy_rows": raw("6204"), "cursor": raw(`{"id":88120,"shard":"b"}`)}, Timeline: slices},
		{UUID: "5f2a9c1e-77aa-4bcd-9001-aabbccddeeff", Class: "RebuildIndex", Args: raw(`["Product"]`), Status: longjob.StatusQueued, Queue: "long", Slices: 3, Units: 941, UnitMS: 41, Steps: []longjob.Step{{Name: "Product", Done: 941}}, Created: agoPtr(6 * time.Minute), Begun: agoPtr(5 * time.Minute), Seen: agoPtr(40 * time.Second), Timeline: slices[30:33]},
		{UUID: "6f2a9c1e-77aa-4bcd-9001-aabbccddeeff", Class: "Archive", Args: raw(`[2023]`), Status: longjob.StatusFailed, Queue: "long", Slices: 9, Units: 2100, Created: agoPtr(3 * time.Hour), Begun: agoPtr(3 * time.Hour), Seen: agoPtr(2 * time.Hour), Error: "disk quota exceeded on archive-2"},
	}
}

// times are the run times of a class in the last hour.
func times() *pages.Chart {
	return &pages.Chart{Title: "Run time", Unit: " s", From: ago(time.Hour), Step: 5 * time.Minute, Series: []pages.Series{
		{Name: "p95", Values: wave(12, 1.2, .4, 3)}, {Name: "p50", Values: wave(12, .08, .02, 3)},
	}}
}

// Samples returns all pages.
func Samples() []Sample {
	busy := queues()
	stats := &view.Stats{
		Processed: 1204311, Failed: 1912, ProcessedPerS: new(57.4), FailedPerS: new(0.), IntervalS: new(2.), Running: 41, Threads: 64, Daemons: 3, Processes: 5,
		Queues: 9, QueuesWaiting: 6, QueuesPaused: 1, Waiting: 8204, OldestS: new(int64(11 * 3600)), Delayed: 118, Failures: 312, LongJobs: 3,
	}
	attention := []pages.Attention{
		{Urgent: true, Text: "legacy-import: 40 jobs wait, and nothing works this queue", View: "queues", Command: "work --queues legacy-import"},
		{Urgent: true, Text: "web-1:4700 cannot start runner python: exit code 1: ModuleNotFoundError: No module named 'thumbs'", View: "workers"},
		{Text: "reports: 12 jobs wait, all of them locked", View: "locks", Command: "locks waiting"},
		{Text: "newsletter: 1,204 jobs wait, and the queue is paused", View: "queues", Command: "queues resume newsletter"},
	}
	spans := []pages.Link{{Text: "live", URL: "/", Current: true}, {Text: "1h", URL: "/?span=1h"}, {Text: "24h", URL: "/?span=24h"}, {Text: "30d", URL: "/?span=30d"}}
	one := busy[0]
	detail := *one.Queue
	detail.Servers = []view.QueueServer{{Worker: "web-1:4700", State: "running", Place: 3, Free: 0, Threads: 32, Busy: 15, Why: "no free thread: 32 of 32 are busy"}, {Worker: "web-2:8800", State: "running", Place: 3, Free: 0, Threads: 32, Busy: 16, Cap: 16, Why: "capped: 16 of 16 run"}, {Worker: "other workers", State: "busy", Free: 0, Threads: 1}}
	one.Queue = &detail
	waiting := []view.WaitingJob{}
	for i := range 12 {
		waiting = append(waiting, view.WaitingJob{Position: int64(i + 1), Class: "Mail", Args: raw(fmt.Sprintf(`[%d,"Welcome, and what to do first"]`, 44+i))})
	}
	waiting[4] = view.WaitingJob{Position: 5, Args: raw("null"), Invalid: "no JSON: invalid character 'o' in literal null"}
	running := jobs()
	shown := *running[1]
	shown.Process, shown.Token, shown.Lock, shown.Fence, shown.Payload = "web-1:4700:0:9120", "81", "locket:job_locks:Report[2024,\"monthly\"]", 10422, `{"class":"Report","args":[2024,"monthly"],"id":"4f2a11dd90124e7fa001"}`
	failed := failures()
	failure := failed[2]
	failure.Backtrace = []string{"/app/jobs/import.rb:88:in `block in perform'", "/app/jobs/import.rb:81:in `each'", "/app/jobs/import.rb:81:in `perform'", "/gems/resque-2.6.0/lib/resque/job.rb:174:in `perform'"}
	failure.Payload = `{"class":"Import","args":["s3://imports/2026-11-24/customers.csv"]}`
	fits := pages.Filter{Kind: filter.Failures, Words: url.Values{"class": {"Mail"}, "error": {"Timeout"}}}
	groups := view.FailureGroups{Groups: []*view.FailureGroup{
		{ID: "6306e678d013", Count: 212, Class: "Mail", Exception: "Timeout", Pattern: "smtp.example.net:#: no answer for #s", Error: "smtp.example.net:587: no answer for 30s", Example: failed[0].ID, Queue: "mail", First: agoPtr(3 * time.Hour), Last: agoPtr(8 * time.Second)},
		{ID: "45d0e8b64e22", Count: 86, Class: "Newsletter::Deliver", Exception: "ActiveRecord::RecordNotFound", Pattern: "Couldn't find Subscriber with '…'=#", Queue: "newsletter", First: agoPtr(9 * 24 * time.Hour), Last: agoPtr(3 * time.Hour)},
		{ID: "0af6af819782", Count: 14, Class: "Import", Exception: "DirtyExit", Pattern: "killed: its process used #G of #G", Queue: "reports", First: agoPtr(26 * time.Hour), Last: agoPtr(2 * time.Hour)},
	}}
	held := locks()
	long := runs()
	database := read([]*view.Lock{
		{Kind: view.DatabaseLock, Key: "invoices:2026-11", Holder: new("billing close"), AgeS: new(int64(95)), TTLS: new(int64(25)), State: store.LockHeld, Sequence: 8120},
		{Kind: view.DatabaseLock, Key: "nightly", Holder: new("reports on web-3"), AgeS: new(int64(7400)), State: store.LockExpired, Sequence: 12},
	})
	oneLock := *held[0]
	oneLock.Fence, oneLock.Process, oneLock.Value, oneLock.Waiting, oneLock.Payload = 10421, "web-1:4700:0:9120", "web-1:4700:0:9120/81", []string{"reports"}, `{"class":"Sync","args":[42]}`
	schedules := []*view.Schedule{
		{Name: "nightly-report", When: "0 2 * * *", Next: new(Now.Add(15*time.Hour + 19*time.Minute)), Last: agoPtr(8*time.Hour + 41*time.Minute), LastOutcome: new("enqueued"), Class: "Report", Args: raw(`["nightly"]`), Queue: "reports", Source: view.FromConfig, Description: "for the finance team"},
		{Name: "sync-stock", When: "every 30s", Next: new(Now.Add(12 * time.Second)), Last: agoPtr(18 * time.Second), LastOutcome: new("still running"), Class: "Sync", Args: raw(`[42]`), Queue: "reports", Source: view.FromClass},
		{Name: "cleanup", When: "@weekly", Overdue: agoPtr(3 * time.Hour), Last: agoPtr(7 * 24 * time.Hour), Class: "Cleanup", Args: raw(`[]`), Queue: "low", Source: view.FromOthers},
	}
	delayed := []view.DelayedJob{}
	for i := range 4 {
		delayed = append(delayed, view.DelayedJob{Name: fmt.Sprintf("%012x", 77001+i), When: "once", Next: new(Now.Add(time.Duration(i*i*7+3) * time.Minute)), Class: "Mail", Args: raw(fmt.Sprintf(`[%d,"Did you know?"]`, i)), Queue: "mail"})
	}
	class := func(name string, runs, failed, notRun int64, wait, p50, p95, p99, share float64, steps []float64) view.Class {
		c := view.Class{Class: name, Tally: view.Tally{Runs: runs, Failed: failed, NotRun: notRun, P50: &p50, P95: &p95, P99: &p99}, Share: share}
		if wait > 0 {
			c.Wait = &wait
		}
		c.Before = &view.Tally{Runs: runs * 9 / 10, Failed: failed / 2, P95: new(p95 * .8)}
		for _, n := range steps {
			c.Steps = append(c.Steps, int64(n))
		}
		return c
	}
	classes := []view.Class{
		class("Mail", 14201, 212, 0, 42_000, 80, 1200, 9000, .38, wave(60, 30, 10, 3)), class("Report", 41, 0, 12, 251_000, 210_000, 540_000, 660_000, .31, wave(60, 2, 2, 4)),
		class("Thumbnail", 43880, 2, 0, 1000, 61, 240, 800, .22, wave(60, 12, 3, 5)), class("SearchIndex::Update", 11310, 0, 0, 300, 9, 31, 88, .09, wave(60, 3, 1, 6)),
	}
	server := rdb.Server{Version: "7.0.15", Role: "master", Policy: "noeviction", Memory: 212 << 20, MemoryLimit: 1 << 30, Clients: 81, ClientLimit: 10000, AppendOnly: new(true), RoundTrip: 412 * time.Microsecond}
	findings := []view.Finding{
		{Check: "queues", Status: view.FindingFail, Text: "legacy-import: 40 jobs wait, and nothing works this queue", Fix: "work --queues legacy-import", Command: true},
		{Check: "locks", Status: view.FindingWarn, Text: "loner:lock:Export:7: its job is gone", Fix: "locks release loner:lock:Export:7", Command: true},
		{Check: "redis", Status: view.FindingOK, Text: "7.0.15, answers in 410µs"},
		{Check: "daemons", Status: view.FindingOK, Text: "3 daemons with 64 threads"},
		{Check: "schedules", Status: view.FindingFail, Text: "cleanup was to enqueue its job 3h ago: no daemon that has the schedule runs", Fix: "workers", Command: true},
	}
	away := Frame("queues", "Queues")
	stale := pages.Read(busy, ago(14*time.Second))
	stale.Err = errText("i/o timeout")
	away.Problem = "dial tcp 10.0.3.7:6379: connect: connection refused"
	done := Frame("failed", "Failed")
	done.Notice = &pages.Notice{Text: "2 failures were retried."}
	var found []view.Failure
	for i := range 8 {
		one := failed[0]
		one.ID = fmt.Sprintf("%dc0de1c0de1c0de1c0de@%d", i+1, 311-i)
		one.Args = raw(fmt.Sprintf(`[%d,"Your invoice"]`, 8841-i*7))
		one.FailedAt = agoPtr(time.Duration(8+i*i*11) * time.Second)
		if i == 2 || i == 3 {
			one.RetriedAt = "2026/11/24 10:40:58"
		}
		found = append(found, one)
	}
	tabs := func(path string, names ...string) (links []pages.Link) {
		f := Frame("", "")
		for i, n := range names {
			links = append(links, pages.Link{Text: n, URL: f.With(path, "state", n), Current: i == 0})
		}
		return links
	}
	hourly := slices.Clone(spans[1:])
	hourly[0].Current = true
	return []Sample{
		{"overview", "/", &pages.Overview{Frame: Frame("overview", "Overview"), Stats: read(stats), Locks: read(17), Attention: read(attention), Chart: read(flow()), Spans: spans, Queues: read(busy[:7]), MoreQueues: 2, Running: read(running[:5]), MoreRunning: 36}},
		{"queues", "/queues", &pages.Queues{Frame: Frame("queues", "Queues"), Rows: read(busy), Sort: "size", Total: 9, States: tabs("/queues", "all 9", "orphan 1", "starved 1", "paused 1"), Pager: pages.Pager{Text: "1–9 of 9"}}},
		{"queue", "/queues/mail", &pages.Queue{Frame: Frame("queues", "mail"), Filter: pages.Filter{Kind: filter.Waiting}, Name: "mail", Queue: read(one), Spans: spans[:3], Chart: read(&pages.Chart{Title: "Jobs waiting", From: ago(time.Hour), Step: 30 * time.Second, Series: []pages.Series{{Name: "waiting", Values: wave(120, 5200, 1800, 19)}}}), Jobs: read(waiting), Pager: pages.Pager{Text: "1–12 of 6,951", Next: "/queues/mail?from=12", Last: "/queues/mail?from=6900"}}},
		{"jobs", "/jobs", &pages.Jobs{Frame: Frame("jobs", "Running jobs"), Filter: pages.Filter{Kind: filter.Running}, Rows: read(running), Total: 41, Pager: pages.Pager{Text: "1–7 of 41", Next: "/jobs?from=7"}}},
		{"job", "/jobs/4f2a11dd90124e7fa001", &pages.Job{Frame: Frame("jobs", "Report"), Name: shown.Name, Job: read(&shown), Siblings: []view.ThreadJob{{ID: "a01b00000000000000aa", Class: "Thumbnail", Args: raw(`[{"asset":88121}]`), Queue: "thumbnails", Thread: 7}}, Events: events()[4:6]}},
		{"failed", "/failed", &pages.Failed{Frame: Frame("failed", "Failed"), Filter: pages.Filter{Kind: filter.Failures}, Groups: read(groups), Total: 312, Parked: read([]*view.ParkedJob{{ID: "77aa02bb4c6e", State: view.ParkedWaits, Queue: "mail", Bytes: 812, ParkedAt: ago(3 * time.Minute), Reason: "the key of its queue is not a list"}})}},
		{"failed-flat", "/failed?view=flat&class=Mail", &pages.Failed{Frame: done, Flat: true, Rows: read(found), Filter: fits, Total: 312, Search: &pages.Search{Scanned: 57000, Total: 640000, Found: 8, Next: "/failed?view=flat&class=Mail&cursor=57000"}}},
		{"failed-end", "/failed?view=flat&class=Mail&cursor=57000", &pages.Failed{Frame: Frame("failed", "Failed"), Flat: true, Rows: read(found[7:]), Filter: fits, Total: 312, Search: &pages.Search{Scanned: 640000, Total: 640000, Found: 9}}},
		{"failure", "/failed/3c0de1c0de1c0de1c0de@309", &pages.Failure{Frame: Frame("failed", "Import"), ID: failure.ID, Failure: read(failure)}},
		{"workers", "/workers", &pages.Workers{Frame: Frame("workers", "Workers"), Hosts: read(hosts()), Foreign: foreign(), Processes: 5, Threads: 80, Busy: 43}},
		{"worker", "/workers/web-1:4700", &pages.Worker{Frame: Frame("workers", "web-1:4700"), Name: "web-1:4700", Master: read(hosts()[0].Masters[0]), Events: events()[3:6]}},
		{"locks", "/locks", &pages.Locks{Frame: Frame("locks", "Locks"), Waiting: read([]view.LockedQueue{{Queue: "reports", State: view.QueueStarved, Locked: 12, Size: 12, SinceS: new(int64(251)), Locks: 2}, {Queue: "mail", State: view.QueueWaits, Locked: 3, Size: 951, SinceS: new(int64(4)), Locks: 1}}), Held: read(held), Unique: read([]view.UniqueQueue{{Queue: "mail", State: view.UniqueOK, Size: new(int64(951)), Set: new(int64(951)), StartAt: new(int64(951)), Configured: true}, {Queue: "orders", State: view.UniqueOutOfStep, Size: new(int64(40)), Set: new(int64(39)), StartAt: new(int64(40))}}), Database: &database, Kinds: tabs("/locks", "all", "locket", "timeout", "loner")}},
		{"lock", "/locks/locket:job_locks:Sync%5B42%5D", &pages.Lock{Frame: Frame("locks", oneLock.Key), Key: oneLock.Key, Lock: read(&oneLock)}},
		{"limits", "/limits", &pages.Limits{Frame: Frame("limits", "Limits"), Rows: read([]view.Limit{
			{Name: "stripe", Key: "acct_1042", Running: 5, Most: 5, Rate: "100/1m", Waiting: 212, Queues: []string{"billing", "refunds"}},
			{Name: "sms", Running: 0, Most: 0, Rate: "10/1s", Waiting: 1204, Queues: []string{"notify"}, Closed: true, Override: "none begins until 2026-11-24T10:30:00Z"},
			{Name: "stripe", Key: "acct_7", Running: 2, Most: 5, Rate: "100/1m"},
			{Name: "all_mail", Running: 38, Most: 40},
			{Name: "big", Most: 2},
		})}},
		{"longjobs", "/longjobs", &pages.LongJobs{Frame: Frame("longjobs", "Long jobs"), Runs: read(long), Recurring: read([]view.Recurring{{Class: "SyncAccount", EveryS: 900, Subjects: 41022, Backlog: 212, Active: 8, Next: Now.Add(20 * time.Second)}}), States: tabs("/longjobs", "active", "failed", "completed"), More: true}},
		{"longjob", "/longjobs/4f2a9c1e-77aa-4bcd-9001-aabbccddeeff", &pages.LongJob{Frame: Frame("longjobs", "Migrate"), UUID: long[0].UUID, Run: read(long[0])}},
		{"longjob-paused", "/longjobs/7f2a9c1e-77aa-4bcd-9001-aabbccddeeff", &pages.LongJob{Frame: Frame("longjobs", "Migrate"), UUID: pausedRun().UUID, Run: read(pausedRun())}},
		{"schedule", "/schedule", &pages.Schedule{Frame: Frame("schedule", "Schedule"), Filter: pages.Filter{Kind: filter.Delayed}, Recurring: read(schedules), Delayed: read(delayed), Pager: pages.Pager{Text: "Those that come next", Next: "/schedule?cursor=s1"}}},
		{"classes", "/classes", &pages.Classes{Frame: Frame("classes", "Classes"), Rows: read(classes), Sort: "time", Span: "1h", Spans: hourly}},
		{"class", "/classes/Mail", &pages.Class{Frame: Frame("classes", "Mail"), Name: "Mail", Row: read(classes[0]), Chart: read(flow()), Times: read(times()), Spans: hourly}},
		{"redis", "/redis", &pages.Redis{Frame: Frame("redis", "Redis"), Server: read(server), Findings: read(findings)}},
		{"events", "/events", &pages.Events{Frame: Frame("events", "Events"), Rows: read(events()), Kinds: tabs("/events", "all", "starts and deploys", "deaths and kills", "what people did"), Pager: pages.Pager{Text: "the newest 7 of 212", Next: "/events?before=3"}}},
		{"confirm", "/queues/newsletter/purge", &pages.Confirm{Frame: Frame("queues", "Purge newsletter"), Question: "Purge 1,204 jobs of newsletter?", Details: []string{"They cannot be brought back.", "Two of its jobs that run now go on."}, Action: "/queues/newsletter", Fields: []pages.Field{{Name: "act", Value: "purge"}, {Name: "expect", Value: "1204"}}, Button: "Purge 1,204 jobs", Back: "/queues/newsletter", Command: "resqued queues purge newsletter"}},
		{"operation", "/operations/1", &pages.Operation{Frame: Frame("failed", "Retry"), What: "Retry all failures of Mail with “Timeout”", Done: 6204, Total: 10000, Failed: 2, Cancel: "/operations/1", Back: "/failed"}},
		{"message", "/queues/mial", &pages.Message{Frame: Frame("queues", "No such queue"), Text: "There is no queue “mial”.", Hint: "Did you mean one of these?", Links: []pages.Link{{Text: "mail", URL: "/queues/mail"}}}},
		{"away", "/away", &pages.Queues{Frame: away, Rows: stale, Total: 9, Sort: "size"}},
		{"empty", "/empty", &pages.Overview{Frame: Frame("overview", "Overview"), Stats: read(&view.Stats{}), Attention: read([]pages.Attention{}), Chart: read(pages.NewTrends().Flow()), Queues: read([]pages.QueueRow{}), Running: pages.Widget[[]*view.Job]{Err: errText("WRONGTYPE Operation against a key holding the wrong kind of value")}}},
	}
}

type errText string

func (e errText) Error() string { return string(e) }
