package workerproc

import (
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

// A Redis that comes back without its last writes may hold records of jobs whose end it
// has lost: no thread runs them, and no process recovers them while this one lives. Beats
// find them. A job that two beats in a row find goes back to its queue.

// busyWith are the exchanges as leftovers see them.
type busyWith interface {
	endings
	// carries reports whether a token, whose number is n, stands for a job that an exchange
	// begins or ends.
	carries(token string, n int) bool
}

// recorder notes how jobs have ended.
type recorder interface {
	whose(r *store.Reserved) int
	record(j *job, out thread.Outcome)
}

// leftovers finds the jobs that Redis has records of and this process does not know. The
// loop owns all fields.
type leftovers struct {
	maxPayload int64
	handlers   Handlers
	jobs       jobs
	exchanges  busyWith
	threads    recorder
	log        *zap.Logger

	told []string // tokens that the last beat has found
}

func newLeftovers(maxPayload int64, handlers Handlers, jobs jobs, exchanges busyWith, threads recorder, log *zap.Logger) *leftovers {
	return &leftovers{maxPayload: maxPayload, handlers: handlers, jobs: jobs, exchanges: exchanges, threads: threads, log: log}
}

// suspect compares the tokens that a beat has found with those of the beat before, and
// returns the tokens whose records are to be read: all of them, if one is in both.
func (l *leftovers) suspect(tokens []string) []string {
	tokens = slices.DeleteFunc(tokens, l.knows)
	before := l.told
	l.told = tokens
	if slices.ContainsFunc(tokens, func(token string) bool { return slices.Contains(before, token) }) {
		return tokens
	}
	return nil
}

// knows reports whether a token stands for something that this process is still busy with.
func (l *leftovers) knows(token string) bool {
	n, err := strconv.Atoi(token)
	return err != nil || l.jobs[token] != nil || l.exchanges.carries(token, n)
}

// giveBack puts jobs that no thread runs back into their queues.
func (l *leftovers) giveBack(records []store.Reserved) {
	for _, r := range records {
		if l.knows(r.Token) {
			continue
		}
		l.log.Error("redis has lost how a job ended", zap.String("queue", wire.Printable(r.Queue, 100)), zap.String("token", r.Token))
		if env, err := wire.Parse(r.Payload, l.maxPayload); err == nil {
			if class, ok := l.handlers.Lookup(env.Class, env.Wrappers...); ok && class.AtMostOnce {
				index := l.threads.whose(&r)
				l.threads.record(&job{
					Reserved: r, job: resqued.Job{ID: env.ID, Class: env.Class, Queue: r.Queue, Payload: r.Payload},
					thread: index, begun: time.Now(), rules: rules{known: true}, leftover: true,
				}, thread.Outcome{Result: thread.Failed, Exception: "Resque::DirtyExit", Message: "redis has lost how the job ended; at_most_once: it does not run again by itself"})
				continue
			}
		}
		l.exchanges.end(store.Completion{Job: &r, Kind: store.Returned, Held: true}, false)
	}
}
