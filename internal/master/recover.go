package master

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// dirtyExit is the exception of a job whose process died, as in Resque.
	dirtyExit = "Resque::DirtyExit"
	// maxNamed bounds how many other jobs a failure record names.
	maxNamed = 8
)

// death is what is known about the end of a worker process.
type death struct {
	proc  string
	cause string
	// peak is its peak memory in bytes; 0 = unknown.
	peak int64
	// seen: the process ended by itself before the master did, so one of its jobs was the cause;
	// otherwise its master or machine may have gone first.
	seen bool
	// mourned: the log has a warning or an error about its end.
	mourned bool
	// killed: all its jobs were to be killed; otherwise only tokens. reason says why.
	killed bool
	tokens []string
	reason string
	// over is set if a drain that took too long ended it; its jobs not in tokens then go back to
	// their queues if that was configured. again are other jobs that go back.
	over  *overrun
	again []string
}

// returns reports whether a job goes back to its queue without a death.
func (d death) returns(job store.Reserved) bool {
	return slices.Contains(d.again, job.Token) || d.over != nil && d.over.requeue
}

func (m *Master) deathOf(w *worker, exit proc.Exit) death {
	d := death{cause: w.ending(exit), peak: exit.MaxRSS, tokens: w.orders.tokens, reason: w.kill.cause, seen: !w.kill.lapsed, mourned: !w.farewell.orderly()}
	switch {
	case w.farewell.reason == proc.Untidy:
		// It has left by itself: no job is to blame.
		d.seen, d.cause = false, "it left while Redis did not take the ends of its jobs"
	case w.orders.answered < w.orders.given && (m.state == signals.Killing || !w.orders.answerBy.IsZero()):
		// It was told to kill its jobs and cannot name them any more, so none of them may run
		// again.
		d.killed = true
	case m.state == signals.Killing, w.kill.asked:
		// It was ended because of jobs told to stop, whether they fail or go back. The others
		// are innocent.
		d.seen = false
	}
	if d.again = w.kill.again; m.state == signals.Killing {
		d.over = m.over
	}
	return d
}

// recover passes what w left in Redis to the recoverer, once nothing of it runs. After an
// orderly end nothing is left; but after the last process, no other could check.
func (m *Master) recover(w *worker, orderly bool, exit proc.Exit) {
	if !w.greeted || orderly && w.farewell.reason != proc.Listed && !m.leaving() {
		return
	}
	m.unrecovered[w.proc] = orderly
	m.queue(w, deadProcess{proc: w.proc, death: m.deathOf(w, exit), policy: m.deathPolicy()})
}

func (m *Master) recovered(r report) {
	if r.lapsed {
		for w := range m.workers {
			if w.proc == r.proc {
				w.kill.lapsed = true
				m.kill(w, "its lease in redis is past")
			}
		}
		return
	}
	delete(m.unrecovered, r.proc)
	if r.requeued > 0 {
		for _, s := range m.slots {
			s.closed = false // there are jobs again
		}
	}
}

// verdicts decides the fate of a dead process's jobs. Jobs that were to be killed have failed,
// or go back if that was requested; then they explain the end of the process. Otherwise each job
// may be to blame and runs again alone, unless too many processes have died with it or its rules
// forbid it. No job is to blame for a death that came from outside.
func (d death) verdicts(held []store.Reserved, policy deathPolicy, now time.Time) []store.Verdict {
	verdicts := make([]store.Verdict, 0, len(held))
	for i, job := range held {
		v := store.Verdict{Token: job.Token, Action: store.Requeue}
		if d.seen {
			v.Action = store.Suspect
		}
		final := policy.registered.Final(job)
		told := d.killed || slices.Contains(d.tokens, job.Token) || slices.Contains(policy.registered.Fails, job.Token)
		switch {
		case job.Kill != nil && job.Kill.Requeue:
			v.Action = store.Again
		case policy.resumes(job):
			if job.Kill != nil || told {
				v.Action = store.Again
			} else if d.returns(job) {
				v.Action = policy.back(job)
			}
		case job.Kill != nil || told:
			text := d.killText()
			if d.over != nil && d.over.requeue && policy.atMostOnce(job) {
				text += "; " + final
			}
			v = d.fail(job, now, text)
		case d.returns(job) && policy.atMostOnce(job):
			v = d.fail(job, now, d.killText()+"; "+final)
		case d.returns(job):
			v.Action = policy.back(job)
		default:
			if why := store.Fatal(job, final, policy.maxDeaths, d.seen); why != "" {
				v = d.fail(job, now, d.diedText(held, i, why))
			}
		}
		v.Listed = policy.failureLists
		verdicts = append(verdicts, v)
	}
	answer(held, verdicts)
	return verdicts
}

// answer tells the people who requested kills how many other jobs were lost.
func answer(held []store.Reserved, verdicts []store.Verdict) {
	lost := 0
	for i, v := range verdicts {
		if v.Action == store.Fail && held[i].Kill == nil {
			lost++
		}
	}
	for i := range verdicts {
		if held[i].Kill != nil {
			again := verdicts[i].Action != store.Fail
			verdicts[i].Kill = &store.KillAnswer{How: store.HowRecycled, Requeued: again, SiblingsLost: lost}
		}
	}
}

func (d death) fail(job store.Reserved, now time.Time, text string) store.Verdict {
	failure := wire.Failure{
		FailedAt: now, Payload: job.Payload, Exception: dirtyExit, Error: text,
		Worker: job.Worker, Queue: job.Queue,
	}
	v := store.Verdict{
		Token: job.Token, Action: store.Fail, Payload: job.Payload, Failure: store.File(failure, d.proc+"#"+job.Token),
	}
	if envelope, err := wire.Parse(job.Payload, 0); err == nil {
		v.Counts = wire.RetryKeys(envelope) // an enqueued retry starts counting anew
	}
	return v
}

func (d death) killText() string {
	reason := strings.TrimPrefix(d.reason, "resqued: ")
	if d.over != nil {
		reason = d.over.cause
	}
	reason = strings.TrimPrefix(strings.TrimPrefix(reason, "job killed"), ": ")
	if reason == "" {
		return "Job was killed"
	}
	return "Job was killed: " + reason
}

// diedText describes the death for people: how the process ended, its memory, why the job does
// not run again, and what else ran in it.
func (d death) diedText(held []store.Reserved, i int, why string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker process died: %s", d.cause)
	if d.peak > 0 {
		fmt.Fprintf(&b, "; peak memory %d MiB", d.peak>>20)
	}
	b.WriteString("; " + why)
	if len(held) > 1 {
		b.WriteString("; at the same time ran ")
		named := 0
		for j, other := range held {
			if j == i {
				continue
			}
			if named == maxNamed {
				fmt.Fprintf(&b, " and %d more", len(held)-1-named)
				break
			}
			if named > 0 {
				b.WriteString(", ")
			}
			named++
			b.WriteString(wire.Printable(className(other), 100))
		}
	}
	return b.String()
}

func className(job store.Reserved) string {
	envelope, err := wire.Parse(job.Payload, 0)
	if err != nil {
		return "a job of queue " + job.Queue
	}
	return envelope.Class
}
