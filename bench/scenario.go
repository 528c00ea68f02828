package main

import (
	"cmp"
	"fmt"
	"time"
)

// The kinds of measurements.
const (
	kindDrain   = "drain"   // jobs wait, then workers start and run them
	kindEnqueue = "enqueue" // producers push, no worker runs
	kindLatency = "latency" // an idle worker gets one job now and then
	kindIdle    = "idle"    // nothing happens
	kindQueue   = "queue"   // like drain, but counted by the length of the queue
	kindFleet   = "fleet"   // many masters without jobs
)

// scenario is one row of the report. The zero value is the base: one process, one queue, jobs
// of 60 bytes that do nothing.
type scenario struct {
	Name, Title string
	Kind        string
	Threads     int
	Processes   int
	Queues      int
	LastOnly    bool          // jobs are only in the last queue
	Wait        time.Duration // how long a job waits for a kernel timer
	Sleep       time.Duration // how long a job sleeps by time.Sleep
	Size        int           // bytes of the job's second argument
	PerFork     int           // JOBS_PER_FORK
	Depth       int           // at least this many jobs wait
	Locked      bool          // every second waiting job is locked by another process
	OneLock     bool          // all jobs have the same lock
	Limited     bool          // all jobs count under a limit that is never reached
	Command     bool          // jobs are external programs
	Runner      bool          // jobs are performed by Ruby, in runners
	// RunnerThreads is how many jobs one runner performs at a time, RunnerJobs after how many
	// jobs it is replaced.
	RunnerThreads, RunnerJobs int
	// App is what the application of the Ruby classes loads: "" = nothing, "resque" = the gem,
	// "active_job" = that and Active Job.
	App        string
	Delay      time.Duration // of each request to Redis, and of each reply
	Waker      bool          // waker: on, and a longer interval when idle
	Processors int           // GOMAXPROCS of the workers; 0 = Go's default
	Glob       bool          // queues: ["*"]
	Goroutines int           // goroutines that push
	Bulk       bool          // many jobs per call
	Masters    int           // of a fleet
	Short      bool          // part of a short run
}

func scenarios() []scenario {
	drain := func(name, title string, s scenario) scenario {
		s.Name, s.Title, s.Kind = name, title, kindDrain
		if s.Threads == 0 {
			s.Threads = 50
		}
		s.Processes, s.Queues = max(s.Processes, 1), max(s.Queues, 1)
		return s
	}
	all := []scenario{
		drain("noop-1", "no-op jobs, 1 thread", scenario{Threads: 1, Short: true}),
		drain("noop-10", "no-op jobs, 10 threads", scenario{Threads: 10, Short: true}),
		drain("noop-50", "no-op jobs, 50 threads", scenario{Short: true}),
		drain("noop-50-1p", "no-op jobs, 50 threads, GOMAXPROCS=1", scenario{Processors: 1}),
		drain("procs-2-1p", "no-op jobs, 2 processes of 50 threads, GOMAXPROCS=1", scenario{Processes: 2, Processors: 1}),
		drain("procs-2", "no-op jobs, 2 processes of 50 threads", scenario{Processes: 2, Short: true}),
		drain("procs-4", "no-op jobs, 4 processes of 50 threads", scenario{Processes: 4}),
		drain("queues-10", "10 queues, jobs in the last, 50 threads", scenario{Queues: 10, LastOnly: true, Short: true}),
		drain("wait-1ms", "1 ms jobs, 50 threads", scenario{Wait: time.Millisecond, Short: true}),
		drain("sleep-1ms", "1 ms jobs by time.Sleep, 50 threads", scenario{Sleep: time.Millisecond, Short: true}),
		drain("payload-1k", "payloads of 1 KB, 50 threads", scenario{Size: 1000}),
		drain("payload-100k", "payloads of 100 KB, 50 threads", scenario{Size: 100_000}),
	}
	for _, shape := range []struct{ processes, threads int }{{2, 5}, {1, 50}} {
		for _, n := range []int{0, 1000, 100} {
			name := fmt.Sprintf("recycle-%dx%d-%d", shape.processes, shape.threads, n)
			title := fmt.Sprintf("1 ms jobs, %d × %d threads, JOBS_PER_FORK %d", shape.processes, shape.threads, n)
			if n == 0 {
				title = fmt.Sprintf("1 ms jobs, %d × %d threads, no recycling", shape.processes, shape.threads)
			}
			all = append(all, drain(name, title, scenario{
				Sleep: time.Millisecond, Processes: shape.processes, Threads: shape.threads, PerFork: n, Short: shape.processes == 2,
			}))
		}
	}
	for _, idle := range []scenario{
		{Name: "idle-1", Title: "idle, 2 × 16 threads, 1 queue", Queues: 1},
		{Name: "idle-16", Title: "idle, 2 × 16 threads, 16 queues", Queues: 16},
		{Name: "idle-glob", Title: "idle, 2 × 16 threads, 16 queues by a glob", Queues: 16, Glob: true},
	} {
		idle.Kind, idle.Threads, idle.Processes = kindIdle, 16, 2
		all = append(all, idle)
		idle.Name, idle.Title, idle.Waker = idle.Name+"-waker", idle.Title+", waker on", true
		all = append(all, idle)
	}
	for _, r := range []scenario{
		{Name: "runner-noop", Title: "no-op Ruby classes by the gem, 2 × 10 at a time", App: "resque", Threads: 10, Short: true},
		{Name: "runner-active-job", Title: "no-op Active Jobs, 2 × 10 at a time", App: "active_job", Threads: 10, Short: true},
		{Name: "runner-threads", Title: "no-op Ruby classes by the gem, 2 runners of 10 threads", App: "resque", Threads: 10, RunnerThreads: 10, Short: true},
		{Name: "runner-recycle", Title: "no-op Ruby classes by the gem, 2 × 10 runners, jobs_per_runner 100", App: "resque", Threads: 10, RunnerJobs: 100},
		{Name: "sidekiqload", Title: "no-op Ruby classes, 1 × 30 at a time, 1 ms to Redis", App: "resque", Processes: 1, Threads: 30, Delay: time.Millisecond / 2},
		{Name: "sidekiqload-threads", Title: "no-op Ruby classes, 1 runner of 30 threads, 1 ms to Redis", App: "resque", Processes: 1, Threads: 30, RunnerThreads: 30, Delay: time.Millisecond / 2},
		{Name: "sidekiqload-active-job", Title: "no-op Active Jobs, 1 × 30 at a time, 1 ms to Redis", App: "active_job", Processes: 1, Threads: 30, Delay: time.Millisecond / 2},
	} {
		r.Kind, r.Runner, r.Queues, r.Processes = kindQueue, true, 1, cmp.Or(r.Processes, 2)
		all = append(all, r)
	}
	for _, f := range []scenario{
		{Name: "fleet-idle-4", Title: "4 masters, 1 queue", Masters: 4, Short: true},
		{Name: "fleet-idle-16", Title: "16 masters, 1 queue", Masters: 16},
		{Name: "fleet-idle-48", Title: "48 masters, 1 queue", Masters: 48},
		{Name: "fleet-queues-2000", Title: "16 masters, 2,000 queues", Masters: 16, Queues: 2000},
		{Name: "fleet-queues-10000", Title: "1 master, 10,000 queues", Masters: 1, Queues: 10_000},
		{Name: "fleet-queues-100000", Title: "1 master, 100,000 queues", Masters: 1, Queues: 100_000},
	} {
		f.Kind, f.Queues, f.Processes, f.Threads = kindFleet, max(f.Queues, 1), 1, 4
		all = append(all, f)
	}
	return append(all,
		drain("defaults", "no-op jobs, the defaults: 1 × 1 thread, JOBS_PER_FORK 1", scenario{Threads: 1, PerFork: 1, Short: true}),
		drain("tuned", "no-op jobs, 2 × 16 threads, JOBS_PER_FORK 1000", scenario{Threads: 16, Processes: 2, PerFork: 1000, Short: true}),
		drain("depth-1e5", "10⁵ jobs wait, 50 threads", scenario{Depth: 100_000}),
		drain("depth-1e7", "10⁷ jobs wait, 50 threads", scenario{Depth: 10_000_000}),
		drain("queues-100", "100 queues with jobs, 50 threads", scenario{Queues: 100}),
		drain("queues-1000", "1,000 queues with jobs, 50 threads", scenario{Queues: 1000}),
		drain("queues-1000-last", "1,000 queues, jobs in the last, 50 threads", scenario{Queues: 1000, LastOnly: true}),
		drain("locked-half", "every other job locked by others, 50 threads", scenario{Locked: true, Short: true}),
		drain("sleep-5ms", "5 ms jobs, 1 thread", scenario{Sleep: 5 * time.Millisecond, Threads: 1}),
		drain("lock-one", "5 ms jobs behind one lock, 8 threads", scenario{Sleep: 5 * time.Millisecond, Threads: 8, OneLock: true}),
		drain("limit", "no-op jobs, 50 threads, a limit that is not reached", scenario{Limited: true}),
		drain("command", "command handlers (/bin/true), 10 threads", scenario{Command: true, Threads: 10, Short: true}),
		scenario{Name: "enqueue-1", Title: "enqueue one by one, 1 goroutine", Kind: kindEnqueue, Goroutines: 1, Queues: 1, Short: true},
		scenario{Name: "enqueue-10", Title: "enqueue one by one, 10 goroutines", Kind: kindEnqueue, Goroutines: 10, Queues: 1, Short: true},
		scenario{Name: "enqueue-100", Title: "enqueue one by one, 100 goroutines", Kind: kindEnqueue, Goroutines: 100, Queues: 1, Short: true},
		scenario{Name: "enqueue-bulk", Title: "enqueue in bulk, 1 goroutine", Kind: kindEnqueue, Goroutines: 1, Queues: 1, Bulk: true, Short: true},
		scenario{Name: "latency", Title: "enqueue to start, idle, 10 threads", Kind: kindLatency, Threads: 10, Processes: 1, Queues: 1, Short: true},
		scenario{Name: "latency-waker", Title: "enqueue to start, idle, 10 threads, waker on", Kind: kindLatency, Threads: 10, Processes: 1, Queues: 1, Waker: true, Short: true},
		scenario{Name: "idle", Title: "idle, 16 threads", Kind: kindIdle, Threads: 16, Processes: 1, Queues: 1, Short: true},
	)
}

// queueNames returns the queues of a scenario, the most important first. The names end in a
// number, so asynq sorts them in this order too.
func (s *scenario) queueNames() []string {
	names := make([]string, s.Queues)
	for i := range names {
		names[i] = fmt.Sprintf("q%04d", i)
	}
	return names
}

func (s *scenario) queueOf(i int) string {
	n := s.Queues - 1
	if !s.LastOnly {
		n = i % s.Queues
	}
	return fmt.Sprintf("q%04d", n)
}

// inQueue returns how many of n jobs are in the i-th queue.
func (s *scenario) inQueue(i, n int) int {
	switch {
	case !s.LastOnly:
		return (n + s.Queues - 1 - i) / s.Queues
	case i == s.Queues-1:
		return n
	}
	return 0
}

func (s *scenario) env() []string {
	var env []string
	if s.Processors > 0 {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", s.Processors))
	}
	if s.Runner {
		env = append(env, rubyEnv()...)
	}
	return env
}
