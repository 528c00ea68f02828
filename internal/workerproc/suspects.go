package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// A job whose process has died with it may be to blame: a suspect. It runs again alone, in a
// process that has run nothing else, because leftovers of another job (a goroutine, memory) can
// kill, too. Only a new process with one thread qualifies as it is. Others set suspects apart in
// Redis and report their number to the master, which starts processes that are Alone.

// tellEvery is how often an unchanged number of suspects is sent again.
var tellEvery = time.Second

type suspects struct {
	*shared
	// count is the last number sent, at at.
	count int
	at    time.Time
}

// alone returns the configuration of a process for one suspect.
func (c Config) alone() Config {
	c.Threads, c.JobsPerFork, c.UntilEmpty = 1, 1, false
	return c
}

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

// tell sends the master the number of waiting suspects, if that is news. took: this process has
// taken one.
func (s *suspects) tell(n int, took bool) {
	if n == s.count && !s.id.alone && (n == 0 || time.Since(s.at) < tellEvery) {
		return
	}
	s.count, s.at = n, time.Now()
	s.link.tell(proc.Message{Type: proc.Apart, Suspects: n, On: took})
}

// sawSuspects handles what an exchange has found about suspects.
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
		// Their locks are held, or other processes were faster.
		p.notNeeded(r.reply.Suspects)
	}
}

func (p *Process) sawAlone(r pollResult) {
	switch {
	case p.threads.begun > 0 || p.exchanges.underway() > 0 || p.life.state != signals.Running:
	case r.suspects > 0:
		p.exchanges.hungry = true
	default:
		p.notNeeded(0)
	}
}

func (p *Process) notNeeded(left int) {
	p.suspects.tell(left, false)
	p.enter(signals.Retiring)
}
