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

// A Redis that comes back without its last writes may have records of jobs whose end it has
// lost: no thread runs them, and no process recovers them while this one lives. A job that two
// beats in a row find goes back to its queue.

// leftovers finds jobs that Redis has records of and this process does not know. The loop owns
// all fields.
type leftovers struct {
	*shared
	exchanges *exchanges
	threads   *threads

	told []string // tokens that the last beat found
}

// suspect compares a beat's tokens with the previous beat's. If one is in both, it returns all
// tokens, whose records to read.
func (l *leftovers) suspect(tokens []string) []string {
	tokens = slices.DeleteFunc(tokens, l.knows)
	before := l.told
	l.told = tokens
	if slices.ContainsFunc(tokens, func(token string) bool { return slices.Contains(before, token) }) {
		return tokens
	}
	return nil
}

// knows reports whether this process is still busy with a token.
func (l *leftovers) knows(token string) bool {
	n, err := strconv.Atoi(token)
	return err != nil || l.jobs[token] != nil || l.exchanges.carries(token, n)
}

func (l *leftovers) giveBack(records []store.Reserved) {
	for _, r := range records {
		r.Limited = l.d.Limits != nil // perhaps
		if l.knows(r.Token) {
			continue
		}
		l.log.Error("redis has lost how a job ended", zap.String("queue", wire.Printable(r.Queue, 100)), zap.String("token", r.Token))
		if env, err := wire.Parse(r.Payload, l.cfg.MaxPayload); err == nil {
			if class, ok := l.d.Handlers.Lookup(env.Class, env.Wrappers...); ok && class.AtMostOnce {
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
