package workerproc

import (
	"slices"

	"github.com/resqued/resqued/internal/store"
)

const (
	// lanes are the exchanges that a process may have under way at the same time. With
	// two, the server works on one while the jobs of the other run; with one, server and
	// process take turns.
	lanes = 2
	// lanesFrom is the number of threads from which there is more than one lane.
	lanesFrom = 4
	// A second exchange leaves when so many percent of the threads have ended their job.
	// With less, calls are small and cost more than the wait for the one before; with
	// more, they seldom overlap. Jobs that take a while leave the server time for smaller
	// calls, and end one by one. Measured for 10 and 50 threads, see docs/performance.md.
	overlapBrief, overlapOther = 30, 15
)

// lane carries one exchange at a time. The loop owns all but requests and sending.
type lane struct {
	number   int
	requests chan store.ExchangeRequest
	sending  int64 // numbers the tries; the exchanger's

	busy bool
	// ended are the completions of the call that is under way, threads those for which it
	// wants a job, first and last its tokens.
	ended       []store.Completion
	threads     []int
	first, last int
	// overlapped is set if another call was under way at the same time.
	overlapped bool
}

func newLane(number int) *lane {
	return &lane{number: number, requests: make(chan store.ExchangeRequest, 1)}
}

// laneCount returns how many lanes a process has. Where programs name locks, a name that
// one call asks for has to go with the next; and a process that is Alone asks for one job only.
func laneCount(cfg Config, id identity) int {
	if cfg.Threads < lanesFrom || cfg.NamedLocks || len(cfg.NamedClasses) > 0 || id.alone {
		return 1
	}
	return lanes
}

// carries reports whether the call that is under way may end, or begin, the job of a token.
func (l *lane) carries(token string, n int) bool {
	return l.busy && (l.first <= n && n <= l.last ||
		slices.ContainsFunc(l.ended, func(c store.Completion) bool { return c.Job.Token == token }))
}
