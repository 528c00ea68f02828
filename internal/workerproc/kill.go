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

// parting is how long a process that must end waits for Redis to take what has ended, because
// those jobs would run again. It is less than the master's margin and than what is left of a
// lock.
const parting = 150 * time.Millisecond

// unhurried replaces parting while neither a lock nor the master is urgent: a busy Redis takes
// longer.
const unhurried = time.Second

// kills stops jobs, and ends the process if they do not stop. The loop owns all fields.
type kills struct {
	*shared
	exchanges *exchanges // has ends that are not recorded
	retire    func(reason string)

	told       int       // kill orders received from the master
	taintedAt  time.Time // when a job made the process have to end
	partedAt   time.Time // since when only unrecorded ends keep a tainted process
	aloneSince time.Time // since when both the master and all jobs are gone
	showed     bool      // the last beat named jobs told to stop
}

func (k *kills) tainted() bool { return !k.taintedAt.IsZero() }

// doomed returns how many jobs were told to stop and have no recorded end.
func (k *kills) doomed() int {
	n := len(k.exchanges.killedTokens())
	for _, j := range k.jobs {
		if j.stop.cause != nil {
			n++
		}
	}
	return n
}

// kill ends the contexts of jobs with a cause that is or wraps resqued.ErrKilled. If some still
// run after grace, the process has to end, because Go cannot stop a goroutine.
func (k *kills) kill(cause error, jobs []*job, grace time.Duration) {
	k.doom(jobs, cause, grace)
	k.nameKilled(jobs)
}

// namedAtOnce is how many tokens easily fit into one message.
const namedAtOnce = 2000

// nameKilled sends the master the tokens of jobs that must not run again if the process dies
// before their ends are recorded. It does not include jobs that begin later.
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

// doom ends the contexts of jobs with a cause and gives them grace to stop.
func (k *kills) doom(jobs []*job, cause error, grace time.Duration) {
	deadline, lost := time.Now().Add(min(grace, longest)), errors.Is(cause, resqued.ErrLockLost)
	newly := 0
	for _, j := range jobs {
		if j.stop.cause == nil {
			j.stop.cause = cause
			j.end(&told{cause, grace, j.stop.request != nil && !j.stop.request.Requeue})
		}
		if lost && !j.stop.lockLost {
			j.stop.lockLost = true
			k.d.Stats.Count(statsd.LockLost, 1)
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

// overdue ends the process when jobs that were told to stop outlast their time. Other jobs may
// finish first, within the time of a killed job; the process takes no new ones.
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
		k.retire("tainted")
		k.beatNow.ring()
	}
	locked := false
	for _, j := range stubborn {
		limit := j.claim.State().Limit
		// Its lock is gone or about to be: others may get it, whatever happens to the other
		// jobs.
		locked = locked || j.stop.lockLost || !limit.IsZero() && !now.Before(limit.Add(k.cfg.TermTimeout))
	}
	limit := k.taintedAt.Add(k.cfg.TermTimeout)
	if others > 0 && !locked && k.life.state != signals.Killing && now.Before(limit) {
		k.alarm.wake(limit)
		return
	}
	if k.exchanges.unsettled() {
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

// missLocks stops jobs whose own thread, not a beat, has found their class lock lost.
func (k *kills) missLocks() {
	for _, j := range k.jobs {
		if lost := j.claim.State(); lost.Lost != nil && !j.stop.lockLost {
			k.log.Error("a job has lost its class lock; telling it to stop", j.named(), zap.NamedError("cause", lost.Lost))
			k.doom([]*job{j}, lost.Lost, lost.Grace)
		}
	}
}

// die ends the process at once. It tells the master which jobs were to be killed; the master
// records them and frees their locks when the process is gone.
func (k *kills) die(stubborn []*job, reason string) {
	m := proc.Message{Type: proc.Tainted, Reason: reason, Busy: len(stubborn)}
	for _, j := range stubborn {
		if j.returns(k.cfg.RequeueLost) {
			m.Again = append(m.Again, j.Token)
			continue
		}
		m.Tokens = append(m.Tokens, j.Token)
	}
	// Killed jobs whose end has not reached Redis still count as killed.
	m.Tokens = append(m.Tokens, k.exchanges.killedTokens()...)
	if err := k.link.send(m); err != nil {
		k.log.Error("cannot tell the master which jobs were killed", zap.Error(err))
	}
	// The master warns once the process is gone; without a master, this process must.
	level := zap.InfoLevel
	if k.link.gone {
		level = zap.WarnLevel
	}
	k.log.Log(level, "ending the process", zap.String("reason", reason), zap.Int("jobs_not_stopped", len(stubborn)))
	_ = k.log.Sync()
	k.d.Exit()
	k.life.fatal = fmt.Errorf("killed jobs still run: %s", reason) // reached only in tests, where Exit returns
}

// orphanPatience is how long a process without a master and jobs waits for Redis. Then others
// recover what it could not record.
const orphanPatience = time.Minute

// abandon ends a process that has lost both its master and Redis: nothing else would.
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

// watchLocks acts when beats have failed for so long that others are about to get locks and places
// under limits. They last from the last beat or from when the job was taken.
func (k *kills) watchLocks() {
	now := procfs.BootTime()
	since, stop := k.lease.silent(now, 0)
	if !stop {
		return
	}
	stopped := 0
	for _, j := range k.jobs {
		silent, stop := k.lease.silent(now, j.reservedAt)
		if !stop || j.stop.cause != nil || !j.exclusive() {
			continue
		}
		stopped++
		k.doom([]*job{j}, &silenceError{silent}, k.lease.left(silent))
	}
	if stopped > 0 {
		k.log.Error("no beat has reached redis for too long; told the jobs that hold locks or count under limits to stop",
			zap.Duration("silent", since), zap.Int("jobs", stopped))
	}
}

// show adds three sets of jobs to a beat: those told to stop, those that make the process have
// to end, and those that have failed if it dies. Another master may recover them.
func (k *kills) show(info map[string]string) {
	var killed, stubborn []string
	fails := k.exchanges.killedTokens()
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

// told is the cause that ends a job's context, with the time left.
type told struct {
	error
	grace time.Duration
	final bool
}

func (t *told) Unwrap() error { return t.error }

// Grace is how long the job may take to stop before its process has to end.
func (t *told) Grace() time.Duration { return t.grace }

// Final reports whether the job must not run again, because a person requested its end.
func (t *told) Final() bool { return t.final }
