package workerproc

import (
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// take handles the completions of a call and the names of locks for the next one. It returns the
// new jobs; renamed ones go back.
func (x *exchanges) take(r *exchangeResult) []store.Reserved {
	x.judge(r)
	clear(r.req.Completions) // drop references to their jobs
	x.spare = r.req.Completions[:0]
	switch {
	case len(r.names) > 0:
		x.names = r.names
	case len(x.names) > 0 && len(r.req.Names) > 0 && &x.names[0] == &r.req.Names[0]:
		x.names = nil // a call has sent them; one on the other lane has not
	}
	for _, job := range r.renamed {
		x.add(store.Completion{Job: &job, Kind: store.Returned, Renamed: true})
	}
	return r.reply.Jobs
}

func (x *exchanges) judge(r *exchangeResult) {
	x.d.Stats.Count(statsd.Locked, r.reply.Bounced)
	x.d.Stats.Count(statsd.Duplicate, len(r.reply.Duplicates))
	for _, queue := range r.reply.OutOfStep {
		name := wire.Printable(queue, 200)
		x.troubles.complain("step "+queue, "a unique queue is skipped: its keys do not match; run: resqued locks repair "+name, zap.String("queue", name))
	}
	for _, queue := range r.reply.WrongType {
		x.troubles.complain("queue "+queue, "a queue's key holds no list; it is skipped until that is repaired",
			zap.String("queue", wire.Printable(queue, 200)))
	}
	if r.reply.Unlockable != "" {
		x.troubles.complain("fence", "no locked job is taken until that is repaired: delete the key, then fencing tokens go on from the clock of Redis",
			zap.String("reason", wire.Printable(r.reply.Unlockable, 300)))
	}
	for i, applied := range r.reply.Applied {
		c := r.req.Completions[i]
		if reason, stuck := r.reply.Stuck[i]; stuck {
			x.stick(c, reason)
			continue
		}
		if reason, parked := r.reply.Parked[i]; parked {
			x.log.Error("the end of a job could not be recorded and was parked: it takes its place when that is repaired; see: resqued parked",
				zap.String("reason", printable(reason)), zap.String("queue", wire.Printable(c.Job.Queue, 200)),
				zap.String("parked", x.id.proc+"#"+c.Job.Token))
		}
		x.stuck.settled(c.Job.Token)
		delete(x.killed, c.Job.Token)
		if slices.Contains(r.reply.Duplicates, i) {
			x.log.Info("a job that was to go back to its queue was dropped: an equal one waits there",
				zap.String("queue", wire.Printable(c.Job.Queue, 200)), zap.String("token", c.Job.Token))
		}
		if !applied && !r.req.Repeat {
			x.log.Warn("late: the record of a job was gone when it ended, so its end changed nothing",
				zap.String("queue", wire.Printable(c.Job.Queue, 200)), zap.String("token", c.Job.Token))
		}
	}
}

// stick keeps a completion that could not be written, for a later try. A process that leaves has
// it parked at once.
func (x *exchanges) stick(c store.Completion, reason string) {
	since := x.stuck.first(c.Job.Token)
	x.troubles.complain("stuck "+reason, "the end of a job cannot be recorded; it stays in flight until that is repaired",
		zap.String("reason", printable(reason)))
	if x.life.goes() && !c.Park {
		c.Park = true
		x.add(c)
		return
	}
	x.stuck.keep(c, since)
}

// unstick sends what was stuck again, if it is time.
func (x *exchanges) unstick() { x.ended = x.stuck.due(x.ended, x.life.goes()) }
