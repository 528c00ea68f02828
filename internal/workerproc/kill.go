package workerproc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// parting is how long a process that has to go waits for Redis to take what has
// ended already, because those jobs would run again. It is less than the margin
// that the master gives, and than what is left of a lock.
const parting = 150 * time.Millisecond

// unhurried is parting while neither a lock nor the master presses: a busy Redis takes longer.
const unhurried = time.Second

// unrecorded are the ends of jobs that Redis has not got; exchanges are such.
type unrecorded interface {
	// unsettled reports whether there are any that may get there soon.
	unsettled() bool
	// killedTokens returns the tokens of the killed jobs among them.
	killedTokens() []string
}

// retirer has the process take no new job.
type retirer interface {
	retire(reason string)
}

// kills stops jobs, and ends the process when they do not stop. The loop owns all fields.
type kills struct {
	cfg        Config
	life       *life
	link       *link
	alarm      *alarm
	lease      *lease
	jobs       jobs // reads them, and marks those that have to stop
	unrecorded unrecorded
	process    retirer
	stats      Stats
	beatNow    bell
	exit       func()
	log        *zap.Logger

	told       int       // messages of the master that ordered kills
	taintedAt  time.Time // when the process had to go because of a job
	partedAt   time.Time // when all that keeps a tainted process was what has ended
	aloneSince time.Time // when the master and the last job were gone
	showed     bool      // the last beat named jobs that were told to stop
}

func newKills(cfg Config, d Deps, life *life, link *link, alarm *alarm, lease *lease, beatNow bell, jobs jobs, unrecorded unrecorded, process retirer) *kills {
	return &kills{
		cfg: cfg, life: life, link: link, alarm: alarm, lease: lease, beatNow: beatNow, jobs: jobs,
		unrecorded: unrecorded, process: process, stats: d.Stats, exit: d.Exit, log: d.Log,
	}
}

// tainted reports whether the process has to go because of a job.
func (k *kills) tainted() bool { return !k.taintedAt.IsZero() }

// orders returns how many messages of the master ordered kills.
func (k *kills) orders() int { return k.told }

// doomed returns how many jobs were told to stop and have no end in Redis yet.
func (k *kills) doomed() int {
	n := len(k.unrecorded.killedTokens())
	for _, j := range k.jobs {
		if j.stop.cause != nil {
			n++
		}
	}
	return n
}

// kill ends the contexts of jobs with a cause that is, or wraps, resqued.ErrKilled. If some still
// run after grace the process has to go, because Go cannot stop a goroutine.
func (k *kills) kill(cause error, jobs []*job, grace time.Duration) {
	k.doom(jobs, cause, grace)
	k.nameKilled(jobs)
}

// namedAtOnce is how many tokens fit into one message with room to spare.
const namedAtOnce = 2000

// nameKilled sends the master the tokens of the jobs that must not run again if the process
// dies before Redis has their ends. Jobs that begin later are not among them.
func (k *kills) nameKilled(jobs []*job) {
	tokens := make([]string, 0, len(jobs))
	for _, j := range jobs {
		if j.stop.fails = !j.returns(k.cfg.RequeueLost); j.stop.fails {
			tokens = append(tokens, j.Token)
		}
	}
	for len(tokens) > namedAtOnce {
		k.link.tell(proc.Message{Type: proc.Killing, Kills: k.told - 1, Tokens: tokens[:namedAtOnce]})
		tokens = tokens[namedAtOnce:]
	}
	k.link.tell(proc.Message{Type: proc.Killing, Kills: k.told, Tokens: tokens})
}

// doom ends the contexts of jobs with a cause, and gives them grace to stop.
func (k *kills) doom(jobs []*job, cause error, grace time.Duration) {
	deadline, lost := time.Now().Add(min(grace, longest)), errors.Is(cause, resqued.ErrLockLost)
	newly := 0
	for _, j := range jobs {
		if j.stop.cause == nil {
			j.stop.cause = cause
			j.ctx.end(&told{cause, grace, j.stop.request != nil && !j.stop.request.Requeue})
		}
		if lost && !j.stop.lockLost {
			j.stop.lockLost = true
			k.stats.Count(statsd.LockLost, 1)
			newly++
		}
		if j.stop.by.IsZero() || deadline.Before(j.stop.by) {
			j.stop.by = deadline
		}
	}
	if newly > 0 {
		k.link.happened(store.EventLockLost, fmt.Sprintf("%s of queue %s: %v", jobs[0].job.Class, jobs[0].Queue, cause), newly)
	}
	if len(jobs) > 0 {
		k.alarm.after(grace)
		k.beatNow.ring()
	}
}

// overdue ends the process when jobs that were told to stop still run and their
// time is up. Jobs that were not told to stop may finish first, for as long as a
// killed job may take; the process takes nothing new meanwhile.
func (k *kills) overdue() {
	k.missLocks()
	now := time.Now()
	var stubborn []*job
	others := 0
	for _, j := range k.jobs {
		ends := j.ends(k.cfg.TermTimeout)
		if !now.Before(ends) {
			stubborn = append(stubborn, j)
			continue
		}
		others++
		if ends.Sub(now) < tickEvery {
			k.alarm.wake(ends)
		}
	}
	if len(stubborn) == 0 {
		return
	}
	if !k.tainted() {
		k.taintedAt = now
		for _, j := range stubborn {
			k.log.Info("a job ignores that it was told to stop; its process has to go",
				j.named(), zap.NamedError("cause", j.cause()))
		}
		k.process.retire("tainted")
		k.beatNow.ring()
	}
	locked := false
	for _, j := range stubborn {
		limit := j.claim.State().Limit
		// Its lock is gone, or goes soon: others may get it, whatever the neighbours do.
		locked = locked || j.stop.lockLost || !limit.IsZero() && !now.Before(limit.Add(k.cfg.TermTimeout))
	}
	limit := k.taintedAt.Add(k.cfg.TermTimeout)
	if others > 0 && !locked && k.life.state != signals.Killing && now.Before(limit) {
		k.alarm.wake(limit)
		return
	}
	if k.unrecorded.unsettled() {
		if k.partedAt.IsZero() {
			k.partedAt = now
		}
		until := k.partedAt.Add(parting)
		if later := k.partedAt.Add(unhurried); !locked && k.life.state != signals.Killing && later.Before(limit) {
			until = later
		}
		if now.Before(until) {
			k.alarm.wake(until)
			return
		}
	}
	k.die(stubborn, fmt.Sprint(stubborn[0].cause()))
}

// missLocks stops the jobs whose class lock was found to be lost by their own thread, not by
// a beat.
func (k *kills) missLocks() {
	for _, j := range k.jobs {
		if lost := j.claim.State(); lost.Lost != nil && !j.stop.lockLost {
			k.log.Error("a job has lost its class lock; telling it to stop", j.named(), zap.NamedError("cause", lost.Lost))
			k.doom([]*job{j}, lost.Lost, lost.Grace)
		}
	}
}

// die ends the process at once. Its master learns which jobs were to be killed;
// it records them, and frees their locks, when the process is gone.
func (k *kills) die(stubborn []*job, reason string) {
	m := proc.Message{Type: proc.Tainted, Reason: reason, Busy: len(stubborn)}
	for _, j := range stubborn {
		if j.returns(k.cfg.RequeueLost) {
			m.Again = append(m.Again, j.Token)
			continue
		}
		m.Tokens = append(m.Tokens, j.Token)
	}
	// Killed jobs whose end has not reached Redis count as killed all the same.
	m.Tokens = append(m.Tokens, k.unrecorded.killedTokens()...)
	if err := k.link.send(m); err != nil {
		k.log.Error("cannot tell the master which jobs were killed", zap.Error(err))
	}
	// The master warns, when the process is gone; one without a master has to do so itself.
	level := zap.InfoLevel
	if k.link.gone {
		level = zap.WarnLevel
	}
	k.log.Log(level, "ending the process", zap.String("reason", reason), zap.Int("jobs_not_stopped", len(stubborn)))
	_ = k.log.Sync()
	k.exit()
	k.life.fatal = fmt.Errorf("killed jobs still run: %s", reason) // only where Exit returns, in tests
}

// orphanPatience is how long a process whose master is gone, and whose jobs are
// done, waits for Redis. Then others recover what it could not record.
const orphanPatience = time.Minute

// abandon ends a process that has lost both its master and Redis: no other process would.
func (k *kills) abandon() {
	switch {
	case !k.link.gone || len(k.jobs) > 0 && k.life.state != signals.Killing:
		k.aloneSince = time.Time{}
	case k.aloneSince.IsZero():
		k.aloneSince = time.Now()
	case time.Since(k.aloneSince) > orphanPatience,
		k.life.state == signals.Killing && time.Since(k.life.since) > k.cfg.TermTimeout+time.Second:
		k.die(nil, "its master and redis are gone")
	}
}

// watchLocks acts when the beats have failed for so long that locks of this process
// are about to expire. A lock lasts from the last beat, or from when it was taken.
func (k *kills) watchLocks() {
	now := procfs.BootTime()
	since, stop := k.lease.silent(now, 0)
	if !stop {
		return
	}
	stopped := 0
	for _, j := range k.jobs {
		silent, stop := k.lease.silent(now, j.reservedAt)
		if !stop || j.stop.cause != nil || j.LockKey == "" && !j.claim.State().Held {
			continue
		}
		stopped++
		k.doom([]*job{j}, &silenceError{silent}, k.lease.left(silent))
	}
	if stopped > 0 {
		k.log.Error("no beat has reached redis for too long; told the jobs that hold locks to stop",
			zap.Duration("silent", since), zap.Int("jobs", stopped))
	}
}

// show adds to the fields of a beat which jobs were told to stop, for which jobs the process
// has to go, and which have failed if it dies: its master may not be the one that recovers them.
func (k *kills) show(info map[string]string) {
	var killed, stubborn []string
	fails := k.unrecorded.killedTokens()
	now := time.Now()
	for token, j := range k.jobs {
		late := !now.Before(j.ends(k.cfg.TermTimeout))
		if j.stop.cause != nil || late {
			killed = append(killed, token)
		}
		if late {
			stubborn = append(stubborn, token)
		}
		if j.stop.fails {
			fails = append(fails, token)
		}
	}
	if len(killed)+len(fails) == 0 && !k.showed {
		return
	}
	k.showed = len(killed)+len(fails) > 0
	for field, tokens := range map[string][]string{store.InfoKilled: killed, store.InfoStubborn: stubborn, store.InfoFails: fails} {
		slices.Sort(tokens)
		info[field] = strings.Join(tokens, " ")
	}
}

// told is the cause with which the context of a job ends, and how long the job has.
type told struct {
	error
	grace time.Duration
	final bool
}

// Unwrap returns the cause.
func (t *told) Unwrap() error { return t.error }

// Grace is how long the job may take to stop before its process has to go.
func (t *told) Grace() time.Duration { return t.grace }

// Final reports whether the job must not run again, because a person has asked for its end.
func (t *told) Final() bool { return t.final }
