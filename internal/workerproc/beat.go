package workerproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// beatAgain is the time from a failed beat to the next try.
const beatAgain = time.Second

type beatCall struct {
	beat      *store.BeatRequest
	mirrors   []store.Mirror
	leftovers []string
	enroll    *store.Enrollment
}

type beatResult struct {
	call      beatCall
	sent      time.Duration
	reply     store.BeatReply
	leftovers []store.Reserved
	// again are the threads that were registered again; unfailed counts the failures that were
	// taken back.
	again    []int
	unfailed int
	err      error
}

type beatStore interface {
	Beat(ctx context.Context, b store.BeatRequest) (store.BeatReply, error)
	Records(ctx context.Context, proc string, tokens []string) ([]store.Reserved, error)
	Enroll(ctx context.Context, e store.Enrollment) (again []int, unfailed int, err error)
	WriteMirrors(ctx context.Context, proc string, mirrors []store.Mirror) error
}

type crew interface {
	counter
	workers() int
	worker(thread int) string
	flush() []store.WorkerStat
	flushed(thread int) store.WorkerStat
}

type dooms interface {
	show(info map[string]string)
	doom(jobs []*job, cause error, grace time.Duration)
}

// leavings are records of jobs that this process does not know.
type leavings interface {
	suspect(tokens []string) []string
	giveBack(records []store.Reserved)
}

type reporter interface {
	report()
}

// beats extends the lease and the locks, and shows in Redis what the process does. The goroutine
// of heart calls Redis; it reads only id, store and registrar. The loop owns the other fields,
// and both use the channels.
type beats struct {
	cfg       Config
	id        identity
	store     beatStore
	registrar *registrar
	life      *life
	lease     *lease
	troubles  *troubles
	jobs      jobs
	threads   crew
	kills     dooms
	leftovers leavings
	reports   reporter
	log       *zap.Logger

	runners func() string // nil = none
	showed  string        // the last text of runners sent

	calling bool // a call is under way
	soon    bool // beat again after that call
	looked  int  // threads whose registration was checked
	now     bell // to the loop: beat before the next one is due; any goroutine may ring
	calls   chan beatCall
	answers chan beatResult
}

func newBeats(cfg Config, id identity, d Deps, registrar *registrar, life *life, lease *lease, troubles *troubles, now bell) *beats {
	return &beats{
		cfg: cfg, id: id, store: d.Store, registrar: registrar, life: life, lease: lease, troubles: troubles, log: d.Log, runners: d.Runners,
		now: now, calls: make(chan beatCall, 1), answers: make(chan beatResult, 1),
	}
}

// watch sets the parts that beats show and that handle what beats find.
func (b *beats) watch(jobs jobs, threads crew, kills dooms, leftovers leavings, reports reporter) {
	b.jobs, b.threads, b.kills, b.leftovers, b.reports = jobs, threads, kills, leftovers, reports
}

func (b *beats) beatNow() {
	b.soon = b.calling
	b.beat()
}

// beat extends the lease and the locks. It does nothing while a call is under way: that one is
// answered or fails within a connection's timeout.
func (b *beats) beat() {
	if b.calling || b.life.leaving {
		return
	}
	r := &store.BeatRequest{Proc: b.id.proc, Info: map[string]string{
		"state": string(b.life.state), "done": strconv.Itoa(b.threads.jobsDone()), "busy": strconv.Itoa(len(b.jobs)),
		"rss": strconv.FormatInt(rss(), 10),
	}}
	for _, j := range b.jobs {
		r.Jobs = append(r.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey, Held: j.claim.State().Held})
	}
	b.kills.show(r.Info)
	if b.runners != nil {
		if text := b.runners(); text != b.showed {
			r.Info[store.InfoRunners], b.showed = text, text
		}
	}
	r.Stats = b.threads.flush()
	r.Look = b.looks()
	b.calling = true
	b.calls <- beatCall{beat: r}
}

// mirror shows jobs that run for mirrorAfter in the keys of Resque.
func (b *beats) mirror() {
	if b.calling || b.life.leaving {
		return
	}
	var mirrors []store.Mirror
	for _, j := range b.jobs {
		if j.mirror != written && time.Since(j.begun) >= mirrorAfter {
			// Set before sending: if the answer gets lost, the key may be written.
			j.mirror = written
			mirrors = append(mirrors, store.Mirror{
				Token: j.Token, Worker: j.Worker,
				Value: wire.Running(j.Queue, j.StartedAt, j.job.Class, j.Payload),
			})
		}
	}
	if len(mirrors) > 0 {
		b.calling = true
		b.calls <- beatCall{mirrors: mirrors}
	}
}

// heart calls Redis for the loop, which a slow Redis must not hold up.
func (b *beats) heart(work context.Context) {
	for {
		select {
		case <-work.Done():
			return
		case call := <-b.calls:
			r := beatResult{call: call, sent: procfs.BootTime()}
			if call.beat != nil {
				r.reply, r.err = b.store.Beat(work, *call.beat)
				if errors.Is(r.err, store.ErrWiped) && b.registrar.rejoin(work) == nil {
					r.sent = procfs.BootTime()
					r.reply, r.err = b.store.Beat(work, *call.beat)
				}
			} else if call.enroll != nil {
				r.again, r.unfailed, r.err = b.store.Enroll(work, *call.enroll)
			} else if call.leftovers != nil {
				r.leftovers, r.err = b.store.Records(work, b.id.proc, call.leftovers)
			} else {
				r.err = b.store.WriteMirrors(work, b.id.proc, call.mirrors)
			}
			b.answers <- r
		}
	}
}

func (b *beats) onBeat(r beatResult) {
	b.calling = false
	soon := b.soon
	b.soon = false
	if soon {
		defer b.beat()
	}
	switch {
	case errors.Is(r.err, store.ErrFenced):
		if !b.life.leaving { // else it came after unregistering
			b.life.fatal = ErrFenced
		}
		return
	case r.err != nil:
		b.troubles.complain("beat", "a heartbeat did not reach redis", zap.Error(r.err))
		b.troubles.redisAway(r.err)
		time.AfterFunc(min(beatAgain, b.cfg.BeatEvery/4), b.now.ring)
		return
	case r.call.enroll != nil:
		b.enrolled(r)
		return
	case r.call.beat == nil:
		b.leftovers.giveBack(r.leftovers)
		return
	}
	b.troubles.redisBack()
	b.lease.renewed = r.sent
	// The master has a timeout too, and locks may be short.
	defer b.reports.report()
	for _, token := range r.reply.Lost {
		if j := b.jobs[token]; j != nil && !j.stop.lockLost {
			locks := j.locks(b.cfg.Redact)
			b.log.Error("a job has lost its lock; telling it to stop", j.named(), zap.String("lock", locks))
			b.kills.doom([]*job{j}, fmt.Errorf("%w: %s is held by another or gone", resqued.ErrLockLost, locks), b.lease.grace())
		}
	}
	for _, token := range r.reply.Gone {
		if j := b.jobs[token]; j != nil {
			b.troubles.complain("gone", "the record of a running job has vanished from redis; its end will change nothing",
				j.named())
		}
	}
	if soon || b.life.leaving {
		return
	}
	if tokens := b.leftovers.suspect(r.reply.Left); len(tokens) > 0 {
		b.calling = true
		b.calls <- beatCall{leftovers: tokens}
	}
	if r.reply.Missing {
		b.enroll()
	}
}
