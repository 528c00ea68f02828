package workerproc

import "github.com/resqued/resqued/internal/store"

// counters count the jobs of the process. The loop owns all fields.
type counters struct {
	begun  int                // jobs started
	used   int                // those that count for JobsPerFork: what runners perform leaves nothing here
	done   int                // jobs ended, without those that went back to their queues
	now    []store.WorkerStat // jobs ended by each thread since the last beat
	before []store.WorkerStat // jobs ended by each thread before, without the ids of the workers
}

func newCounters(workers []string) counters {
	c := counters{now: make([]store.WorkerStat, len(workers)), before: make([]store.WorkerStat, len(workers))}
	for i, id := range workers {
		c.now[i].Worker = id
	}
	return c
}

func (c *counters) countProcessed(thread int) { c.now[thread].Processed++ }

// countFailed counts a job that was processed, and has failed.
func (c *counters) countFailed(thread int) {
	c.now[thread].Failed++
	c.now[thread].Processed++
}

// flush returns what was counted since it was called last.
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

// flushed returns what a thread had counted when flush was called last.
func (c *counters) flushed(thread int) store.WorkerStat { return c.before[thread] }
