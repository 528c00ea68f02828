package workerproc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// beatAgain is how long after a beat that failed another one is tried.
const beatAgain = time.Second

type beatCall struct {
	beat    *store.BeatRequest
	mirrors []store.Mirror
	// leftovers are tokens whose records are to be read.
	leftovers []string
	enroll    *store.Enrollment
}

type beatResult struct {
	call  beatCall
	sent  time.Duration
	reply store.BeatReply
	// leftovers are the records that were asked for.
	leftovers []store.Reserved
	// again are the threads that were registered again, unfailed how many failures were
	// taken back.
	again    []int
	unfailed int
	err      error
}

// beat extends the lease and the locks. A beat that is under way is not doubled:
// it is either answered or fails within the timeout of a connection.
func (p *Process) beat() {
	if p.beating || p.leaving {
		return
	}
	b := &store.BeatRequest{Proc: p.name.Proc, Info: map[string]string{
		"state": string(p.state), "done": strconv.Itoa(p.done), "busy": strconv.Itoa(len(p.jobs)),
		"rss": strconv.FormatInt(rss(), 10),
	}}
	for _, j := range p.jobs {
		b.Jobs = append(b.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey, Held: j.claim.State().Held})
	}
	p.showKills(b.Info)
	for i := range p.stats {
		if p.stats[i].Processed > 0 {
			b.Stats = append(b.Stats, p.stats[i])
			p.totals[i].Processed += p.stats[i].Processed
			p.totals[i].Failed += p.stats[i].Failed
			p.stats[i].Processed, p.stats[i].Failed = 0, 0
		}
	}
	b.Look = p.looks()
	p.beating = true
	p.beats <- beatCall{beat: b}
}

// mirror shows jobs that have been running for a moment.
func (p *Process) mirror() {
	if p.beating || p.leaving {
		return
	}
	var mirrors []store.Mirror
	for _, j := range p.jobs {
		if (!j.mirrored || j.unmirrored) && time.Since(j.begun) >= mirrorAfter {
			// Before it is sent: an answer that got lost may hide a written key.
			j.mirrored, j.unmirrored = true, false
			mirrors = append(mirrors, store.Mirror{
				Token: j.Token, Worker: j.Worker,
				Value: wire.Running(j.Queue, j.StartedAt, j.job.Class, j.Payload),
			})
		}
	}
	if len(mirrors) > 0 {
		p.beating = true
		p.beats <- beatCall{mirrors: mirrors}
	}
}

// heart sends beats and mirrors, so that a slow Redis never holds up the loop.
func (p *Process) heart() {
	for {
		select {
		case <-p.work.Done():
			return
		case call := <-p.beats:
			r := beatResult{call: call, sent: proc.BootTime()}
			if call.beat != nil {
				r.reply, r.err = p.d.Store.Beat(p.work, *call.beat)
				if errors.Is(r.err, store.ErrWiped) && p.rejoin() == nil {
					r.sent = proc.BootTime()
					r.reply, r.err = p.d.Store.Beat(p.work, *call.beat)
				}
			} else if call.enroll != nil {
				r.again, r.unfailed, r.err = p.d.Store.Enroll(p.work, *call.enroll)
			} else if call.leftovers != nil {
				r.leftovers, r.err = p.d.Store.Records(p.work, p.name.Proc, call.leftovers)
			} else {
				r.err = p.d.Store.WriteMirrors(p.work, p.name.Proc, call.mirrors)
			}
			p.beaten <- r
		}
	}
}

// rejoin registers again in a Redis that has lost its data. The jobs in hand go
// on, but for those that held locks: the next beat finds that these are gone.
func (p *Process) rejoin() error {
	p.log.Error("redis has lost its data, this process and its locks among it; registering again")
	err := p.d.Store.Register(p.work, p.registration)
	if err != nil {
		p.log.Error("cannot register again; trying with the next beat", zap.Error(err))
	}
	return err
}

// felt takes the answer of a beat.
func (p *Process) felt(r beatResult) {
	p.beating = false
	soon := p.beatSoon
	p.beatSoon = false
	if soon {
		defer p.beat()
	}
	switch {
	case errors.Is(r.err, store.ErrFenced):
		if !p.leaving { // else it came behind the end of the registration
			p.fatal = ErrFenced
		}
		return
	case r.err != nil:
		p.complain("beat", "a heartbeat did not reach redis", zap.Error(r.err))
		p.redisAway()
		time.AfterFunc(min(beatAgain, p.cfg.BeatEvery/4), p.beatAtOnce)
		return
	case r.call.enroll != nil:
		p.enrolled(r)
		return
	case r.call.beat == nil:
		p.giveBack(r.leftovers)
		return
	}
	p.redisBack()
	// Counted from when it was sent: the server may have applied it right then.
	p.lastBeat = r.sent
	// The master counts, too, and locks may be short.
	defer p.report()
	for _, token := range r.reply.Lost {
		if j := p.jobs[token]; j != nil && !j.lost {
			p.log.Error("a job has lost its lock; telling it to stop", zap.Stringer("job", j),
				zap.String("lock", j.locks()))
			p.doom([]*job{j}, fmt.Errorf("%w: %s is held by another or gone", resqued.ErrLockLost, j.locks()), p.lockGrace())
		}
	}
	for _, token := range r.reply.Gone {
		if j := p.jobs[token]; j != nil {
			p.complain("gone", "the record of a running job has vanished from redis; its end will change nothing",
				zap.Stringer("job", j))
		}
	}
	if soon || p.leaving {
		return
	}
	p.suspectLeftovers(r.reply.Left)
	if r.reply.Missing {
		p.enroll()
	}
}

// locks names the locks that a job holds in the daemon's Redis.
func (j *job) locks() string {
	var names []string
	if j.LockKey != "" {
		names = append(names, wire.Printable(j.LockKey, 300))
	}
	if claim := j.claim.State(); claim.Held {
		names = append(names, wire.Printable(claim.Key, 300))
	}
	return strings.Join(names, " or ")
}

// lockEnd is when this process must be gone if no other beat succeeds: before the
// locks that it holds can be another's.
func (p *Process) lockEnd() time.Duration {
	ends := p.lastBeat + part(p.cfg.LockDuration, lockEnd)
	if p.d.LocksEnd == nil {
		return ends
	}
	if elsewhere := p.d.LocksEnd(); elsewhere > 0 {
		return min(ends, elsewhere)
	}
	return ends
}

// lockGrace is how long a job that has lost its lock may take to stop.
func (p *Process) lockGrace() time.Duration {
	return part(p.cfg.LockDuration, lockEnd-lockStop)
}

// tick does what only time brings about.
func (p *Process) tick() {
	p.mirror()
	p.askKills()
	p.watchLocks()
	p.overdue()
	p.unstick()
	p.abandon()
	if !p.drainEnds.IsZero() && time.Now().After(p.drainEnds) {
		p.drainEnds = time.Time{}
		p.log.Warn("the drain took too long; killing the jobs", zap.Int("jobs", len(p.jobs)))
		p.kill(p.all(), p.cfg.TermTimeout)
		p.enter(signals.Killing)
	}
}

// report tells the master how the process is, and shows it in the title. Age and
// memory are asked, not decided: the master says when a successor may start.
func (p *Process) report() {
	if p.name.Proc == "" {
		return
	}
	size := rss()
	m := proc.Message{
		Type: proc.Beat, State: string(p.state), Busy: len(p.jobs), Done: p.done, JobsPerFork: p.cfg.Quota, RSS: size,
		Kills: p.kills, Doomed: p.doomed(), LockEnd: p.lockEnd(),
	}
	if err := p.send(m); err != nil {
		p.complain("report", "the master does not read", zap.Error(err))
	}
	quota := ""
	if p.cfg.Quota > 0 {
		quota = "/" + strconv.Itoa(p.cfg.Quota)
	}
	who := fmt.Sprintf("worker %d of %d", p.name.Slot+1, p.name.Slots)
	if p.name.Alone {
		who = "worker for a suspect"
	}
	proc.SetTitle(fmt.Sprintf(proc.TitleOf+"%s: %s, %d/%d busy, %d%s done",
		who, p.state, len(p.jobs), p.cfg.Threads, p.done, quota))
	if p.state != signals.Running || p.asked {
		return
	}
	switch {
	case p.cfg.MaxRSS > 0 && size > p.cfg.MaxRSS:
		p.ask(proc.Message{Type: proc.Retires, Reason: "memory", RSS: size, MaxRSS: p.cfg.MaxRSS})
	case p.cfg.MaxAge > 0 && time.Since(p.started) > p.cfg.MaxAge:
		p.ask(proc.Message{Type: proc.Retires, Reason: "age"})
	}
}

// ask tells the master that this process should be replaced.
func (p *Process) ask(m proc.Message) {
	if err := p.send(m); err == nil {
		p.asked = true
	}
}

// weighEvery is how often memory is looked at as jobs end. It takes some microseconds.
const weighEvery = 50 * time.Millisecond

// weigh looks at the memory of the process when a job has ended: until the next report
// others could take as much again.
func (p *Process) weigh() {
	if p.cfg.MaxRSS <= 0 || p.done == p.weighed || p.asked || p.state != signals.Running {
		return
	}
	now := time.Now()
	if now.Sub(p.weighedAt) < weighEvery {
		return
	}
	p.weighed, p.weighedAt = p.done, now
	if size := rss(); size > p.cfg.MaxRSS {
		p.ask(proc.Message{Type: proc.Retires, Reason: "memory", RSS: size, MaxRSS: p.cfg.MaxRSS})
	}
}

// retire stops taking jobs for good, without being asked to.
func (p *Process) retire(reason string) {
	if p.state != signals.Running && p.state != signals.Paused {
		return
	}
	// First of all: a successor may wait for it.
	if err := p.send(proc.Message{Type: proc.Retires, Reason: reason}); err != nil {
		p.complain("report", "the master does not read", zap.Error(err))
	}
	p.enter(signals.Retiring)
}

// rss is this process's resident memory in bytes; 0 if it cannot be told.
func rss() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
