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
// has lost: nobody runs them, and while this process lives nobody recovers them. Beats
// tell of them. One that two beats in a row tell of goes back to its queue.

// suspectLeftovers compares what a beat has told with the one before, and has the
// records read of those that are in both.
func (p *Process) suspectLeftovers(tokens []string) {
	tokens = slices.DeleteFunc(tokens, p.knows)
	for _, token := range tokens {
		if slices.Contains(p.leftovers, token) {
			p.beating = true
			p.beats <- beatCall{leftovers: tokens}
			break
		}
	}
	p.leftovers = tokens
}

// knows reports whether a token stands for something that this process is still busy with.
func (p *Process) knows(token string) bool {
	n, err := strconv.Atoi(token)
	return err != nil || p.threads.jobs[token] != nil || p.exchanges.carries(token, n)
}

// giveBack ends jobs that nobody runs.
func (p *Process) giveBack(records []store.Reserved) {
	for _, r := range records {
		if p.knows(r.Token) {
			continue
		}
		p.log.Error("redis has lost how a job ended", zap.String("queue", wire.Printable(r.Queue, 100)), zap.String("token", r.Token))
		if env, err := wire.Parse(r.Payload, p.cfg.MaxPayload); err == nil {
			if class, ok := p.d.Handlers.Lookup(env.Class); ok && class.AtMostOnce {
				index := p.threads.whose(&r)
				p.threads.record(&job{
					Reserved: r, job: resqued.Job{ID: env.ID, Class: env.Class, Queue: r.Queue, Payload: r.Payload},
					thread: index, begun: time.Now(), known: true, leftover: true,
				}, thread.Outcome{Result: thread.Failed, Exception: "Resque::DirtyExit", Message: "redis has lost how the job ended; at_most_once: it does not run again by itself"})
				continue
			}
		}
		p.exchanges.end(store.Completion{Job: &r, Kind: store.Returned, Held: true}, false)
	}
}
