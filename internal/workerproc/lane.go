package workerproc

import (
	"slices"

	"github.com/resqued/resqued/internal/store"
)

const (
	// lanes is the number of exchanges that a process may have under way. With two, the server
	// works on one while the jobs of the other run; with one, server and process take turns.
	lanes = 2
	// lanesFrom is the number of threads from which there are several lanes.
	lanesFrom = 4
	// A second exchange leaves when this percentage of the threads has ended its job. With less,
	// calls are small and cost more than waiting for the previous one; with more, they rarely
	// overlap. Longer jobs leave the server time for smaller calls, and end one by one. Measured
	// for 10 and 50 threads, see bench/RESULTS.md.
	overlapBrief, overlapOther = 30, 15
)

// lane carries one exchange at a time. The loop owns all but requests and sending.
type lane struct {
	number   int
	requests chan store.ExchangeRequest
	sending  int64 // numbers the tries; owned by the exchanger

	busy bool
	// Of the call under way: ended are its completions, threads those that it wants jobs for,
	// first and last its tokens.
	ended       []store.Completion
	threads     []int
	first, last int
	// overlapped: another call was under way at the same time.
	overlapped bool
}

func newLane(number int) *lane {
	return &lane{number: number, requests: make(chan store.ExchangeRequest, 1)}
}

// laneCount returns the number of lanes. Where programs name locks, a name that one call asks
// for must go with the next, so there is one. Jobs under limits keep their order. A process that is Alone asks for one job only.
func laneCount(cfg Config, id identity, limited bool) int {
	if cfg.Threads < lanesFrom || cfg.NamedLocks || len(cfg.NamedClasses) > 0 || limited || id.alone {
		return 1
	}
	return lanes
}

// carries reports whether the call under way may end or begin a token's job.
func (l *lane) carries(token string, n int) bool {
	return l.busy && (l.first <= n && n <= l.last ||
		slices.ContainsFunc(l.ended, func(c store.Completion) bool { return c.Job.Token == token }))
}
