package workerproc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
)

// A lock is kept for its whole duration D after the last beat was sent. Its
// holder tells the job to stop when 20/35 of D are gone, and ends the process at
// 27/35: before anyone else can have the lock.
const (
	lockStop = 20.0 / 35
	lockEnd  = 27.0 / 35
)

// parting is how long a process that has to go waits for Redis to take what has
// ended already, because those jobs would run again. It is less than the margin
// that the master gives, and than what is left of a lock.
const parting = 150 * time.Millisecond

// doomed counts the jobs that were told to stop and whose end Redis has not got.
func (p *Process) doomed() int {
	n := len(p.exchanges.killed)
	for _, j := range p.threads.jobs {
		if j.doomed != nil {
			n++
		}
	}
	return n
}

// kill tells jobs to stop. Those that still run after grace cost the process: Go
// cannot stop a goroutine.
func (p *Process) kill(jobs []*job, grace time.Duration) {
	p.doom(jobs, resqued.ErrKilled, grace)
	p.nameKilled(jobs)
}

// namedAtOnce is how many tokens fit into one message with room to spare.
const namedAtOnce = 2000

// nameKilled tells the master which jobs must not run again if the process dies before
// Redis has their ends. Those that begin from now on are none of them.
func (p *Process) nameKilled(jobs []*job) {
	tokens := make([]string, 0, len(jobs))
	for _, j := range jobs {
		if !j.returns(p.cfg.RequeueLost) {
			tokens = append(tokens, j.Token)
		}
	}
	for len(tokens) > namedAtOnce {
		p.link.tell(proc.Message{Type: proc.Killing, Kills: p.kills - 1, Tokens: tokens[:namedAtOnce]})
		tokens = tokens[namedAtOnce:]
	}
	p.link.tell(proc.Message{Type: proc.Killing, Kills: p.kills, Tokens: tokens})
}

func (p *Process) doom(jobs []*job, cause error, grace time.Duration) {
	deadline, lost := time.Now().Add(min(grace, longest)), errors.Is(cause, resqued.ErrLockLost)
	for _, j := range jobs {
		if j.doomed == nil {
			j.doomed = cause
			j.ctx.end(&told{cause, grace})
		}
		if lost && !j.lost {
			j.lost = true
			p.d.Stats.Count(statsd.LockLost, 1)
		}
		if j.deadline.IsZero() || deadline.Before(j.deadline) {
			j.deadline = deadline
		}
	}
	if len(jobs) > 0 {
		p.alarm.after(grace)
		p.beatNow.ring()
	}
}

// overdue ends the process when jobs that were told to stop still run and their
// time is up. Jobs that were not told to stop may finish first, for as long as a
// killed job may take; the process takes nothing new meanwhile.
func (p *Process) overdue() {
	p.missLocks()
	now := time.Now()
	var stubborn []*job
	others := 0
	for _, j := range p.threads.jobs {
		ends := j.ends(p.cfg.TermTimeout)
		if !now.Before(ends) {
			stubborn = append(stubborn, j)
			continue
		}
		others++
		if ends.Sub(now) < tickEvery {
			p.alarm.wake(ends)
		}
	}
	if len(stubborn) == 0 {
		return
	}
	if p.taintedAt.IsZero() {
		p.taintedAt = now
		for _, j := range stubborn {
			p.log.Info("a job ignores that it was told to stop; its process has to go",
				zap.Stringer("job", j), zap.NamedError("cause", j.cause()))
		}
		if p.life.state == signals.Running || p.life.state == signals.Paused {
			p.retire("tainted")
		}
		p.beatNow.ring()
	}
	locked := false
	for _, j := range stubborn {
		limit := j.claim.State().Limit
		// Its lock is gone, or goes soon: others may get it, whatever the neighbours do.
		locked = locked || j.lost || !limit.IsZero() && !now.Before(limit.Add(p.cfg.TermTimeout))
	}
	limit := p.taintedAt.Add(p.cfg.TermTimeout)
	if others > 0 && !locked && p.life.state != signals.Killing && now.Before(limit) {
		p.alarm.wake(limit)
		return
	}
	if p.exchanges.unsettled() {
		if p.partedAt.IsZero() {
			p.partedAt = now
			p.alarm.after(parting)
		}
		if now.Sub(p.partedAt) < parting {
			return
		}
	}
	p.die(stubborn, fmt.Sprint(stubborn[0].cause()))
}

// missLocks tells the jobs to stop whose class lock was found to be lost by
// somebody else than the beat.
func (p *Process) missLocks() {
	for _, j := range p.threads.jobs {
		if lost := j.claim.State(); lost.Lost != nil && !j.lost {
			p.log.Error("a job has lost its class lock; telling it to stop", zap.Stringer("job", j), zap.NamedError("cause", lost.Lost))
			p.doom([]*job{j}, lost.Lost, lost.Grace)
		}
	}
}

// die ends the process at once. Its master learns which jobs were to be killed;
// it records them, and frees their locks, when the process is gone.
func (p *Process) die(stubborn []*job, reason string) {
	m := proc.Message{Type: proc.Tainted, Reason: reason, Busy: len(stubborn)}
	for _, j := range stubborn {
		if j.returns(p.cfg.RequeueLost) {
			continue // it may run again, as what is not named
		}
		m.Tokens = append(m.Tokens, j.Token)
	}
	// Killed jobs whose end has not reached Redis count as killed all the same.
	m.Tokens = slices.AppendSeq(m.Tokens, maps.Keys(p.exchanges.killed))
	if err := p.link.send(m); err != nil {
		p.log.Error("cannot tell the master which jobs were killed", zap.Error(err))
	}
	// The master warns, when the process is gone; one without a master has to do so itself.
	level := zap.InfoLevel
	if p.link.gone {
		level = zap.WarnLevel
	}
	p.log.Log(level, "ending the process", zap.String("reason", reason), zap.Int("jobs_not_stopped", len(stubborn)))
	_ = p.log.Sync()
	p.d.Exit()
	p.life.fatal = fmt.Errorf("killed jobs still run: %s", reason) // only where Exit returns, in tests
}

func part(d time.Duration, share float64) time.Duration { return time.Duration(float64(d) * share) }

// orphanPatience is how long a process whose master is gone, and whose jobs are
// done, waits for Redis. Then others recover what it could not record.
const orphanPatience = time.Minute

// abandon ends a process that has lost both its master and Redis: nobody else
// would.
func (p *Process) abandon() {
	switch {
	case !p.link.gone || len(p.threads.jobs) > 0 && p.life.state != signals.Killing:
		p.aloneSince = time.Time{}
	case p.aloneSince.IsZero():
		p.aloneSince = time.Now()
	case time.Since(p.aloneSince) > orphanPatience,
		p.life.state == signals.Killing && time.Since(p.life.since) > p.cfg.TermTimeout+time.Second:
		p.die(nil, "its master and redis are gone")
	}
}

// watchLocks acts when the beats have failed for so long that locks of this process
// are about to expire. A lock lasts from the last beat, or from when it was taken.
func (p *Process) watchLocks() {
	now := proc.BootTime()
	stop, end := part(p.cfg.LockDuration, lockStop), part(p.cfg.LockDuration, lockEnd)
	if now-p.lastBeat < stop {
		return
	}
	stopped := 0
	for _, j := range p.threads.jobs {
		silent := now - max(p.lastBeat, j.reserved)
		if silent < stop || j.doomed != nil || j.LockKey == "" && !j.claim.State().Held {
			continue
		}
		stopped++
		p.doom([]*job{j}, fmt.Errorf("%w: no heartbeat for %s", resqued.ErrLockLost, silent.Round(time.Millisecond)), max(0, end-silent))
	}
	if stopped > 0 {
		p.log.Error("no beat has reached redis for too long; told the jobs that hold locks to stop",
			zap.Duration("silent", now-p.lastBeat), zap.Int("jobs", stopped))
	}
}
