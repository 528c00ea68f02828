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

// beatCall is a call of Redis by heart. After its success, the loop calls then, if not nil; soon:
// a beat follows at once.
type beatCall struct {
	run  func(work context.Context) error
	then func(soon bool)
	err  error
}

// beats extends the lease and the locks, and shows in Redis what the process does. The goroutine
// of heart calls Redis; it reads only id, d and registrar. The loop owns the other fields, and
// both use the channels.
type beats struct {
	*shared
	registrar *registrar
	threads   *threads
	kills     *kills
	leftovers *leftovers
	reports   *reports

	showed  string // the last text of Deps.Runners sent
	calling bool   // a call is under way
	soon    bool   // beat again after that call
	looked  int    // threads whose registration was checked
	calls   chan beatCall
	answers chan beatCall
}

func newBeats(s *shared, registrar *registrar, threads *threads, kills *kills, leftovers *leftovers, reports *reports) *beats {
	return &beats{
		shared: s, registrar: registrar, threads: threads, kills: kills, leftovers: leftovers, reports: reports,
		calls: make(chan beatCall, 1), answers: make(chan beatCall, 1),
	}
}

func (b *beats) hurry() {
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
		"state": string(b.life.state), "done": strconv.Itoa(b.threads.done), "busy": strconv.Itoa(len(b.jobs)),
		"rss": strconv.FormatInt(rss(), 10),
	}}
	for _, j := range b.jobs {
		r.Jobs = append(r.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey, Held: j.claim.State().Held})
	}
	b.kills.show(r.Info)
	if b.d.Runners != nil {
		if text := b.d.Runners(); text != b.showed {
			r.Info[store.InfoRunners], b.showed = text, text
		}
	}
	r.Stats = b.threads.flush()
	r.Look = b.looks()
	var reply store.BeatReply
	var sent time.Duration
	b.call(func(work context.Context) (err error) {
		sent = procfs.BootTime()
		if reply, err = b.d.Store.Beat(work, *r); errors.Is(err, store.ErrWiped) && b.registrar.rejoin(work) == nil {
			sent = procfs.BootTime()
			reply, err = b.d.Store.Beat(work, *r)
		}
		return err
	}, func(soon bool) { b.beaten(reply, sent, soon) })
}

func (b *beats) call(run func(work context.Context) error, then func(soon bool)) {
	b.calling = true
	b.calls <- beatCall{run: run, then: then}
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
		b.call(func(work context.Context) error { return b.d.Store.WriteMirrors(work, b.id.proc, mirrors) }, nil)
	}
}

// heart calls Redis for the loop, which a slow Redis must not hold up.
func (b *beats) heart(work context.Context) {
	for {
		select {
		case <-work.Done():
			return
		case call := <-b.calls:
			call.err = call.run(work)
			b.answers <- call
		}
	}
}

func (b *beats) onBeat(r beatCall) {
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
	case r.err != nil:
		b.troubles.complain("beat", "a heartbeat did not reach redis", zap.Error(r.err))
		b.troubles.redisAway(r.err)
		time.AfterFunc(min(beatAgain, b.cfg.BeatEvery/4), b.beatNow.ring)
	case r.then != nil:
		r.then(soon)
	}
}

// beaten handles the reply to a beat, which was sent at the boot time sent.
func (b *beats) beaten(reply store.BeatReply, sent time.Duration, soon bool) {
	b.troubles.redisBack()
	b.lease.renewed = sent
	// The master has a timeout too, and locks may be short.
	defer b.reports.report()
	for _, token := range reply.Lost {
		if j := b.jobs[token]; j != nil && !j.stop.lockLost {
			locks := j.locks(b.cfg.Redact)
			b.log.Error("a job has lost its lock; telling it to stop", j.named(), zap.String("lock", locks))
			b.kills.doom([]*job{j}, fmt.Errorf("%w: %s is held by another or gone", resqued.ErrLockLost, locks), b.lease.grace())
		}
	}
	for _, token := range reply.Gone {
		if j := b.jobs[token]; j != nil {
			b.troubles.complain("gone", "the record of a running job has vanished from redis; its end will change nothing",
				j.named())
		}
	}
	if soon || b.life.leaving {
		return
	}
	if tokens := b.leftovers.suspect(reply.Left); len(tokens) > 0 {
		var records []store.Reserved
		b.call(func(work context.Context) (err error) {
			records, err = b.d.Store.Records(work, b.id.proc, tokens)
			return err
		}, func(bool) { b.leftovers.giveBack(records) })
	}
	if reply.Missing {
		b.enroll()
	}
}
