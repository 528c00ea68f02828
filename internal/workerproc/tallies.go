package workerproc

import "github.com/resqued/resqued/internal/store"

// tallies count the jobs that each thread has ended. The loop owns all fields.
type tallies struct {
	now []store.WorkerStat // since the last beat
	// before are those of earlier beats, without the ids of the workers.
	before []store.WorkerStat
}

func newTallies(workers []string) tallies {
	t := tallies{now: make([]store.WorkerStat, len(workers)), before: make([]store.WorkerStat, len(workers))}
	for i, id := range workers {
		t.now[i].Worker = id
	}
	return t
}

func (t *tallies) processed(thread int) { t.now[thread].Processed++ }

// failed counts a job that was processed, and has failed.
func (t *tallies) failed(thread int) {
	t.now[thread].Failed++
	t.now[thread].Processed++
}

// flush returns what was counted since it was called last.
func (t *tallies) flush() []store.WorkerStat {
	var counted []store.WorkerStat
	for i := range t.now {
		n, b := &t.now[i], &t.before[i]
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
func (t *tallies) flushed(thread int) store.WorkerStat { return t.before[thread] }
