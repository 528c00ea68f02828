package master

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

const (
	// redisPatience bounds one call.
	redisPatience = 5 * time.Second

	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second

	// masterTTL is how long a master is shown without a renewal.
	masterTTL = store.MasterTTL

	// otherWorkersEvery is how often the queues of other programs' workers are noted.
	otherWorkersEvery = 30 * time.Second
)

// deadProcess is a dead worker process of this master, of which nothing runs any more.
type deadProcess struct {
	proc   string
	death  death
	policy deathPolicy

	tries   int
	retryAt time.Time
}

// round is one look at what dead processes of all masters have left.
type round struct {
	info   store.MasterInfo
	policy deathPolicy
	shared Shared
	// mine are the living worker processes of this master, unrecovered its dead ones.
	mine, unrecovered map[string]bool
}

type report struct {
	proc             string
	requeued, failed int
	// lapsed: the process lives, but its lease in Redis is past.
	lapsed bool
}

// recoverer does all of a master's work in Redis, in its own goroutine, which Run starts and
// awaits: the loop never waits for Redis. It recovers the jobs of this master's dead processes
// at once. In each round it recovers those of every process whose lease is past and of dead
// masters on this machine.
//
// A job is recovered only after its process was reaped and everything started by the process is
// gone.
type recoverer struct {
	store Store
	sys   System
	log   *zap.Logger
	self  proc.Identity
	stats Stats

	dead    chan deadProcess
	rounds  chan round
	reports chan report
	orders  chan store.Order

	pending []*deadProcess
	// notedAt is when this recoverer last asked to note the queues of other programs' workers.
	notedAt time.Time
	// complaint is the last logged error, which is not repeated.
	complaint string
	// outage is set while Redis does not answer the rounds; the loop reads it. afflicted is what
	// failed.
	outage    atomic.Pointer[outage]
	afflicted string
	// evicts: Redis may evict jobs, as of the last look.
	evicts bool
	clock  clock
	// failed counts the failed recoveries of other masters' processes.
	failed map[string]int
	// said is what was logged about others and is not logged again.
	said map[string]bool
}

// maxSaid bounds said.
const maxSaid = 1000

// first reports whether something is to be said for the first time.
func (j *recoverer) first(what string) bool {
	if j.said[what] {
		return false
	}
	if len(j.said) >= maxSaid {
		clear(j.said)
	}
	j.said[what] = true
	return true
}

// parkTries is the number of tries after which a job that cannot be moved where it belongs is
// parked; see store.ParkedJob.
const parkTries = 4

func newRecoverer(d Deps) *recoverer {
	return &recoverer{
		store: d.Store, sys: d.System, log: d.Log.Named("recoverer"), self: d.Self, stats: d.Stats,
		dead: make(chan deadProcess), rounds: make(chan round), reports: make(chan report), orders: make(chan store.Order),
		failed: map[string]int{}, said: map[string]bool{},
	}
}

func (j *recoverer) run(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case g := <-j.dead:
			j.pending = append(j.pending, &g)
		case r := <-j.rounds:
			j.look(ctx, r)
		case <-retry.C:
		}
		retry.Reset(j.work(ctx))
	}
}

// work recovers the pending processes that are due, and returns when to try again.
func (j *recoverer) work(ctx context.Context) time.Duration {
	var left []*deadProcess
	next := time.Hour
	for _, g := range j.pending {
		if !time.Now().Before(g.retryAt) && ctx.Err() == nil && j.recover(ctx, g) {
			continue
		}
		left = append(left, g)
		next = min(next, max(time.Until(g.retryAt), time.Millisecond))
	}
	j.pending = left
	return next
}

// recover recovers the jobs of a dead process, or schedules the next try.
func (j *recoverer) recover(ctx context.Context, g *deadProcess) (done bool) {
	r, err := j.raise(ctx, g.proc, g.death, g.policy, true, g.tries >= parkTries)
	if err != nil {
		delay := min(firstRetry<<min(g.tries, 16), longestRetry)
		g.tries++
		g.retryAt = time.Now().Add(delay/2 + rand.N(delay/2))
		j.complain(ctx, "the jobs of a dead worker process cannot be recovered yet; their locks stay", err, zap.String("proc", g.proc))
		return false
	}
	j.tell(ctx, r)
	return true
}

// raise moves the jobs of a dead process back to their queues, or to failed. With park, jobs
// that cannot go there are parked.
func (j *recoverer) raise(ctx context.Context, name string, d death, policy deathPolicy, force, park bool) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	r := report{proc: name}
	held, bad, err := j.store.Fence(ctx, name, force)
	if err != nil {
		return r, err
	}
	if len(bad) > 0 && j.first("records of "+name) {
		j.log.Error("records of a dead process cannot be read and stay in redis", zap.String("proc", name), zap.Int("records", len(bad)),
			zap.Strings("tokens", bad[:min(len(bad), maxNamed)]))
	}
	if len(held) > 0 {
		if policy.registered, err = j.store.PolicyOf(ctx, name, policy.registered); err != nil {
			return r, err
		}
		if policy.registered.MaxDeaths > 0 {
			policy.maxDeaths = policy.registered.MaxDeaths
		}
	}
	d.proc = name
	verdicts := d.verdicts(held, policy, time.Now())
	for i := range verdicts {
		verdicts[i].Park = park
	}
	err = j.store.Recover(ctx, name, verdicts)
	for i, v := range verdicts {
		if v.Failed && j.stats != nil {
			j.stats.Died(policy.counted(held[i]), held[i].Queue)
		}
	}
	if err != nil {
		return r, err
	}
	j.complaint = ""
	for _, v := range verdicts {
		if v.Action == store.Fail {
			r.failed++
		} else {
			r.requeued++
		}
	}
	if len(verdicts) > 0 {
		level := zap.WarnLevel
		if d.mourned {
			level = zap.InfoLevel
		}
		j.log.Log(level, "recovered the jobs of a dead worker process", zap.String("proc", name), zap.String("ended", d.cause),
			zap.Int("jobs_requeued", r.requeued), zap.Int("jobs_failed", r.failed))
	}
	return r, nil
}

// look renews this master's entry and recovers what others have left.
func (j *recoverer) look(ctx context.Context, r round) {
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	began := time.Now()
	orders, err := j.store.PutMaster(call, r.info)
	for _, o := range orders {
		select {
		case j.orders <- o:
		case <-ctx.Done():
		}
	}
	if err != nil {
		j.suffer(ctx, "redis cannot be told of this master", err, began)
		return
	}
	j.checkEviction(call)
	if lists, err := j.store.RestoreFailed(call); err != nil {
		j.complain(ctx, "failures cannot be brought back that a command has left", err)
	} else if len(lists) > 0 {
		j.log.Warn("failures were brought back to their lists: a command that edited them has not come to its end", zap.Strings("lists", lists))
	}
	j.unpark(call)
	j.noteOtherWorkers(ctx, call)
	asked := procfs.BootTime()
	around, err := j.store.LookAround(call, r.shared.Digest, j.self.Place(), j.self.String())
	if err != nil {
		j.suffer(ctx, "orphaned jobs cannot be looked for", err, began)
		return
	}
	j.clock.see(j.log, around.Now, asked, procfs.BootTime())
	j.compare(call, r.shared, around.Others)
	j.noteUnread(around.Unread)
	if o := j.outage.Swap(nil); o != nil {
		j.log.Info("redis is back", zap.Duration("after", time.Since(o.since)))
	}
	j.complaint, j.afflicted = "", ""
	var others, gone, late []string
	for _, name := range around.Orphans {
		switch {
		case r.mine[name]:
			j.tell(ctx, report{proc: name, lapsed: true})
		case !r.unrecovered[name]:
			others = append(others, name)
		}
	}
	dead := slices.DeleteFunc(around.Local, func(name string) bool { return !j.isGone(call, name) })
	// Sweep first: that needs no Redis, and remains of one process must not wait for the
	// recovery of another's jobs.
	for _, name := range dead {
		if j.sweep(ctx, name) {
			gone = append(gone, name)
		}
	}
	for _, name := range others {
		if !slices.Contains(gone, name) && (!strings.HasPrefix(name, j.self.Place()+":") || j.outlaw(ctx, name) && j.sweep(ctx, name)) {
			late = append(late, name)
		}
	}
	for _, name := range gone {
		j.adopt(ctx, name, death{cause: "its process and its master are gone"}, r.policy, true)
	}
	for _, name := range late {
		j.adopt(ctx, name, death{cause: "its lease was past, its process or its host is gone"}, r.policy, false)
	}
}

// isGone reports whether a process of this machine and its master are proven to be dead, and
// everything that it may have left is in reach of a sweep. A living master handles its own dead,
// and a process without a master may be draining. Unproven cases wait for the end of the lease.
func (j *recoverer) isGone(ctx context.Context, name string) bool {
	master, err := proc.ParseIdentity(name)
	if err != nil || master == j.self || !j.sys.Dead(master) {
		return false
	}
	fields, err := j.store.ProcFields(ctx, name, append(procfs.TraceFields(), store.InfoFormat))
	if err != nil || !store.Readable(fields) {
		return false
	}
	traces, err := procfs.ParseTraces(fields)
	if err != nil {
		j.leave(master, "it has not said which process it was")
		return false
	}
	dead, inReach := j.sys.DeadWorker(traces)
	if dead && !inReach {
		j.leave(master, "what it may have left running cannot be seen from here: it had another user or other rights, and its control group is not empty")
	}
	return dead && inReach
}

// leave logs once why the jobs of a dead master are not recovered at once.
func (j *recoverer) leave(master proc.Identity, why string) {
	if !j.first("left by " + master.String()) {
		return
	}
	j.log.Info("jobs of a daemon of this machine that is dead run again when its lease has ended, or when it is back",
		zap.Stringer("master", master), zap.String("because", why))
}

func (j *recoverer) unpark(ctx context.Context) {
	n, err := j.store.Unpark(ctx)
	if n > 0 {
		j.log.Info("what was parked has taken its place", zap.Int("jobs", n))
	}
	if err != nil {
		j.log.Debug("what is parked cannot be looked at", zap.Error(err))
	}
}

// checkEviction logs once when Redis begins to be able to evict jobs. That was checked at the
// start, but can change.
func (j *recoverer) checkEviction(ctx context.Context) {
	err := j.store.CheckEviction(ctx)
	if err != nil && !j.evicts {
		j.log.Error("jobs may be lost, and a restart will be refused", zap.Error(err))
	}
	j.evicts = err != nil
}

// outlaw ends the past lease of a process of this machine for good. The process may be alive and
// may have renewed it; until outlaw succeeds, nothing of it may be ended.
func (j *recoverer) outlaw(ctx context.Context, name string) bool {
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	_, _, err := j.store.Fence(call, name, false)
	if err != nil && !errors.Is(err, store.ErrAlive) {
		j.complain(ctx, "the jobs of a dead worker process cannot be recovered yet; their locks stay", err, zap.String("proc", name))
	}
	return err == nil
}

// adopt recovers the jobs of a dead process of another master. If that fails, the next round
// tries again.
func (j *recoverer) adopt(ctx context.Context, name string, d death, policy deathPolicy, force bool) {
	r, err := j.raise(ctx, name, d, policy, force, j.failed[name] >= parkTries)
	switch {
	case errors.Is(err, store.ErrAlive):
		delete(j.failed, name)
	case err != nil:
		j.failed[name]++
		j.complain(ctx, "the jobs of a dead worker process cannot be recovered yet; their locks stay", err, zap.String("proc", name))
	default:
		delete(j.failed, name)
		j.tell(ctx, r)
	}
}

func (j *recoverer) sweep(ctx context.Context, name string) (clean bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	killed, err := j.sys.Sweep(ctx, name)
	if err != nil {
		j.log.Error("processes of a dead worker process do not end", zap.Error(err))
		return false
	}
	if killed > 0 {
		j.log.Warn("killed processes that a dead worker process had left", zap.String("proc", name), zap.Int("processes", killed))
	}
	return true
}

func (j *recoverer) tell(ctx context.Context, r report) {
	select {
	case j.reports <- r:
	case <-ctx.Done():
	}
}

func (j *recoverer) noteOtherWorkers(ctx, call context.Context) {
	if time.Since(j.notedAt) < otherWorkersEvery {
		return
	}
	j.notedAt = time.Now()
	if err := j.store.NoteOtherWorkers(call, otherWorkersEvery); err != nil {
		j.complain(ctx, "queues of other programs' workers cannot be noted", err)
	}
}

func (j *recoverer) complain(ctx context.Context, what string, err error, fields ...zap.Field) {
	if ctx.Err() != nil {
		return // cut off by the end of the master, not by Redis
	}
	if text := what + err.Error(); text != j.complaint {
		j.complaint = text
		j.log.Error(what, append(fields, zap.Error(err))...)
	}
}
