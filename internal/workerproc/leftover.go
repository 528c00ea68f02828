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
	is := func(c store.Completion) bool { return c.Job.Token == token }
	n, err := strconv.Atoi(token)
	return err != nil || n > p.sequence || p.jobs[token] != nil ||
		slices.ContainsFunc(p.ended, is) || p.isStuck(token) ||
		slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.carries(token, n) })
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
				index := p.whose(&r)
				p.record(&job{
					Reserved: r, job: resqued.Job{ID: env.ID, Class: env.Class, Queue: r.Queue, Payload: r.Payload},
					thread: index, begun: time.Now(), known: true,
				}, thread.Outcome{Result: thread.Failed, Exception: "Resque::DirtyExit", Message: "redis has lost how the job ended; at_most_once: it does not run again by itself"})
				p.ended[len(p.ended)-1].Held = true // it has no claim that could tell
				continue
			}
		}
		p.ended = append(p.ended, store.Completion{Job: &r, Kind: store.Returned, Held: true})
		p.hungry = true
	}
}
