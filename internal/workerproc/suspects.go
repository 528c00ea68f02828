package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// A job whose process has died with it may be to blame: a suspect. It runs again alone
// in a process that has run nothing before, because what another job has left behind
// (a goroutine, memory) kills, too. The only process of that kind by itself is a new
// one of one thread. Others set suspects apart, in Redis, and tell their master how
// many wait; he starts processes that are Alone.

// tellEvery is how often a number of suspects that does not change is sent.
var tellEvery = time.Second

// suspects reports suspects to the master. The loop owns all fields.
type suspects struct {
	alone bool
	link  *link
	// count is the number that was sent last, at that time.
	count int
	at    time.Time
}

func newSuspects(alone bool, link *link) *suspects { return &suspects{alone: alone, link: link} }

// alone returns the configuration of a process for one suspect.
func (c Config) alone() Config {
	c.Threads, c.JobsPerFork, c.UntilEmpty = 1, 1, false
	return c
}

// countSuspects returns how many suspects are in the queues that this process works.
func countSuspects(queues selector.Spec, suspects map[string]int) int {
	if len(suspects) == 0 {
		return 0
	}
	names := make([]string, 0, len(suspects))
	for name := range suspects {
		names = append(names, name)
	}
	n := 0
	for _, c := range queues.Resolve(names) {
		n += suspects[c.Queue]
	}
	return n
}

// tell sends the master how many suspects wait, if that is news. took is set if this
// process has taken one.
func (s *suspects) tell(n int, took bool) {
	if n == s.count && !s.alone && (n == 0 || time.Since(s.at) < tellEvery) {
		return
	}
	s.count, s.at = n, time.Now()
	s.link.tell(proc.Message{Type: proc.Apart, Suspects: n, On: took})
}

// sawSuspects handles what an exchange has found of suspects.
func (p *Process) sawSuspects(r exchangeResult) {
	switch {
	case len(r.req.Wants) == 0:
	case !p.id.alone:
		if r.reply.Suspects > 0 {
			p.suspects.tell(r.reply.Suspects, false)
		}
	case len(r.reply.Jobs) > 0:
		p.suspects.tell(r.reply.Suspects, true)
	case !p.exchanges.hungry:
		// Their locks are held, or others were faster.
		p.notNeeded(r.reply.Suspects)
	}
}

// sawAlone handles what the poller of a process that is Alone has found.
func (p *Process) sawAlone(r pollResult) {
	switch {
	case p.threads.begun > 0 || p.exchanges.underway() > 0 || p.life.state != signals.Running:
	case r.suspects > 0:
		p.exchanges.hungry = true
	default:
		p.notNeeded(0)
	}
}

// notNeeded ends a process that is Alone without a job.
func (p *Process) notNeeded(left int) {
	p.suspects.tell(left, false)
	p.enter(signals.Retiring)
}
