package workerproc

import "github.com/resqued/resqued/internal/store"

// counters count the process's jobs. The loop owns all fields.
type counters struct {
	begun  int                // jobs started
	used   int                // those that count for JobsPerFork: jobs of runners leave nothing in this process
	done   int                // jobs ended, without those that went back to their queues
	now    []store.WorkerStat // jobs ended by each thread since the last beat
	before []store.WorkerStat // jobs ended by each thread before that, without worker ids
}

func newCounters(workers []string) counters {
	c := counters{now: make([]store.WorkerStat, len(workers)), before: make([]store.WorkerStat, len(workers))}
	for i, id := range workers {
		c.now[i].Worker = id
	}
	return c
}

func (c *counters) countProcessed(thread int) { c.now[thread].Processed++ }

// countFailed counts a job that was processed and has failed.
func (c *counters) countFailed(thread int) {
	c.now[thread].Failed++
	c.now[thread].Processed++
}

// flush returns the counts since the last flush.
func (c *counters) flush() []store.WorkerStat {
	var counted []store.WorkerStat
	for i := range c.now {
		n, b := &c.now[i], &c.before[i]
		if n.Processed == 0 {
			continue
		}
		counted = append(counted, *n)
		b.Processed += n.Processed
		b.Failed += n.Failed
		n.Processed, n.Failed = 0, 0
	}
	return counted
}
