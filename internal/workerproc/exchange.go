package workerproc

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
)

type exchangeResult struct {
	lane  *lane
	req   store.ExchangeRequest
	reply store.ExchangeReply
	names []store.LockName
	// renamed are jobs of lines whose lock has another name by now; see exchanger.sort.
	renamed []store.Reserved
	// sent is the boot time at which the answered try was sent.
	sent time.Duration
	// refused are the jobs that must not run, and why; turn is when one that waits for a limit may go, zero = unknown.
	refused map[string]error
	turn    time.Time
	err     error
}

// exchanger carries out the calls of the lanes. Each lane's goroutine executes run, which uses
// only what any goroutine may.
type exchanger struct {
	*shared
	registrar *registrar
}

// run carries out the calls of a lane until their outcome is certain.
func (e *exchanger) run(work context.Context, l *lane, answers chan<- exchangeResult) {
	for {
		select {
		case <-work.Done():
			return
		case req := <-l.requests:
			r := e.exchangeUntilKnown(work, l, req)
			r.names = e.nameAll(r.reply.Unnamed)
			e.sort(&r)
			e.limit(work, &r)
			answers <- r
		}
	}
}

// nameAll names the locks and tenants that a reply asks for. It may call functions of programs,
// so the loop must not do it.
func (e *exchanger) nameAll(unnamed []store.LockName) []store.LockName {
	for i := range unnamed {
		unnamed[i].Name = e.d.Namer.Name(unnamed[i].Queue, unnamed[i].Payload)
		if e.d.Tenants != nil {
			unnamed[i].Tenant = e.d.Tenants.Tenant(unnamed[i].Queue, unnamed[i].Payload)
		}
	}
	return unnamed
}

// jobLocks is in the key of each job lock, between the namespace and the name.
const jobLocks = "locket:job_locks:"

// sort moves the jobs whose lock has another name by now from the reply to renamed. A process
// with another job_lock_key, or another function in Go, has put them in line, and their lock
// does not exclude what it must. A daemon that takes no locks in their queue runs them with the
// lock of their line.
func (e *exchanger) sort(r *exchangeResult) {
	if e.d.Namer == nil {
		return
	}
	jobs := r.reply.Jobs[:0]
	for _, job := range r.reply.Jobs {
		_, name, _ := strings.Cut(job.LockKey, jobLocks)
		if job.Lined && e.cfg.Locketed(job.Queue) && name != e.d.Namer.Name(job.Queue, job.Payload) {
			r.renamed = append(r.renamed, job)
		} else {
			jobs = append(jobs, job)
		}
	}
	r.reply.Jobs = jobs
}

// exchangeUntilKnown repeats a request until Redis has answered it. Repeat marks a request whose
// outcome is unknown, so that nothing is popped twice. sending numbers the tries, so that a
// delayed try pops nothing either.
func (e *exchanger) exchangeUntilKnown(work context.Context, l *lane, req store.ExchangeRequest) exchangeResult {
	backoff := 20 * time.Millisecond
	var down time.Time
	failed := 0            // answers saying that the script did not finish
	var sent time.Duration // the first try that may have taken locks
	for {
		l.sending++
		req.Lane, req.Sending = l.number, l.sending
		if !req.Repeat {
			sent = procfs.BootTime()
		}
		reply, err := e.d.Store.Exchange(work, req)
		switch {
		case err == nil:
			e.troubles.exchange.note(nil)
			if !down.IsZero() {
				e.log.Info("redis is back", zap.Duration("after", time.Since(down)))
				e.beatNow.ring()
			}
			since, err := e.renewed(work, reply.Jobs, sent)
			return exchangeResult{lane: l, req: req, reply: reply, sent: since, err: err}
		case work.Err() != nil:
			return exchangeResult{lane: l, req: req, err: err}
		case errors.Is(err, store.ErrFenced):
			// The lease is past, or was not extended for long. If no other process has recovered
			// the jobs, a beat revives it.
			_, err := e.d.Store.Beat(work, store.BeatRequest{Proc: e.id.proc})
			if err != nil && !req.Repeat {
				req.Wants, req.Queues = nil, nil // ends must not wait for a lease
			}
			if errors.Is(err, store.ErrFenced) {
				return exchangeResult{lane: l, req: req, err: ErrFenced}
			}
			if errors.Is(err, store.ErrWiped) && e.registrar.rejoin(work) == nil {
				e.beatNow.ring() // that beat knows the locks
			}
		default:
			e.troubles.exchange.note(err)
			req.Repeat = req.Repeat || !rdb.Unexecuted(err)
			if down.IsZero() {
				what := "redis refuses"
				if rdb.Unreachable(err) {
					what = "redis does not answer"
				}
				e.log.Error(what+"; what has ended is kept, trying again", zap.Error(err),
					zap.Int("ended", len(req.Completions)), zap.Int("wanted", len(req.Wants)))
				down = time.Now()
			}
			if !rdb.Unreachable(err) && !rdb.Unexecuted(err) {
				failed++
			}
			if failed >= apartAfter && len(req.Completions) > 0 {
				return e.oneByOne(work, l, req, sent)
			}
		}
		sleep(work, backoff/2+time.Duration(rand.Int64N(int64(backoff))))
		backoff = min(backoff*2, 2*time.Second)
	}
}

// apartAfter is how many failures of the script make a request be split.
const apartAfter = 4

// oneByOne ends each job of a request by itself, because the script fails on one and the others
// must not wait for that. It asks for no jobs. Jobs that earlier tries have taken begin now: the
// first such try was sent at sent, and later tries take nothing.
func (e *exchanger) oneByOne(work context.Context, l *lane, req store.ExchangeRequest, sent time.Duration) exchangeResult {
	r := exchangeResult{lane: l, req: req, reply: store.ExchangeReply{
		Applied: make([]bool, len(req.Completions)), Stuck: map[int]string{}, Parked: map[int]string{},
	}}
	r.req.Repeat = true // some may have been applied
	for i := 0; i < len(req.Completions) && work.Err() == nil; {
		l.sending++
		one := store.ExchangeRequest{
			Proc: req.Proc, Master: req.Master, Completions: req.Completions[i : i+1 : i+1], Lane: l.number, Sending: l.sending, Repeat: true,
		}
		reply, err := e.d.Store.Exchange(work, one)
		switch {
		case err == nil:
			r.reply.Applied[i] = reply.Applied[0]
			if reason, ok := reply.Stuck[0]; ok {
				r.reply.Stuck[i] = reason
			}
			if reason, ok := reply.Parked[0]; ok {
				r.reply.Parked[i] = reason
			}
			i++
			continue
		case errors.Is(err, store.ErrFenced):
			if _, err := e.d.Store.Beat(work, store.BeatRequest{Proc: e.id.proc}); errors.Is(err, store.ErrFenced) {
				r.err = ErrFenced
				return r
			}
		case !rdb.Unreachable(err) && !rdb.Unexecuted(err):
			r.reply.Stuck[i] = err.Error()
			i++
			continue
		}
		sleep(work, 100*time.Millisecond)
	}
	for len(req.Wants) > 0 && work.Err() == nil {
		jobs, err := e.d.Store.Records(work, req.Proc, tokensOf(req.Wants))
		if err == nil {
			for i := range jobs {
				jobs[i].Lined = true // perhaps
			}
			r.reply.Jobs = jobs
			r.sent, r.err = e.renewed(work, jobs, sent)
			return r
		}
		if !rdb.Unreachable(err) && !rdb.Unexecuted(err) {
			break // beats find the records
		}
		sleep(work, 100*time.Millisecond)
	}
	r.err = work.Err()
	return r
}

func tokensOf(wants []store.Want) []string {
	tokens := make([]string, len(wants))
	for i, want := range wants {
		tokens[i] = want.Token
	}
	return tokens
}

// renewed returns the boot time from which the locks of jobs taken at sent count. If that is
// long ago, a beat extends the locks before the jobs begin. If the machine was frozen in
// between, other processes may have them: the error is ErrFenced.
func (e *exchanger) renewed(work context.Context, jobs []store.Reserved, sent time.Duration) (since time.Duration, err error) {
	now := procfs.BootTime()
	if len(jobs) == 0 || now-sent < part(e.cfg.LockDuration, lockStop)/4 {
		return sent, nil
	}
	b := store.BeatRequest{Proc: e.id.proc}
	for _, j := range jobs {
		b.Jobs = append(b.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey})
	}
	// The loop's next beat stops jobs whose lock is lost.
	switch _, err := e.d.Store.Beat(work, b); {
	case errors.Is(err, store.ErrFenced):
		return sent, ErrFenced
	case err != nil:
		return sent, nil
	}
	return now, nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
