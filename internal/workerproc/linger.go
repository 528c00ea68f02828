package workerproc

import "time"

// lingers is how long the end of a job waits at most for those of its neighbours, so that one
// call takes several. Only jobs of runners wait: functions that end at once have ended together
// anyway (see gather), but a runner is another process, and a call costs more than a short job.
const lingers = 4 * time.Millisecond

// linger reports whether ends should wait for those of jobs that have just begun, and has the loop
// look again in time. They wait no longer than two such jobs take.
func (p *Process) linger() bool {
	ended, usual := len(p.exchanges.ended), 2*p.threads.pace.usual
	if ended == 0 || p.life.goes() || usual == 0 || usual > lingers {
		p.lingering = time.Time{}
		return false
	}
	now := time.Now()
	if p.lingering.IsZero() {
		p.lingering = now
	}
	over := p.lingering.Add(usual)
	if p.threads.fledglings(now, usual) == 0 || !now.Before(over) {
		p.lingering = time.Time{}
		return false
	}
	p.alarm.wake(over)
	return true
}

// fledglings returns how many jobs have begun a moment ago.
func (t *threads) fledglings(now time.Time, moment time.Duration) (n int) {
	for _, j := range t.jobs {
		if now.Sub(j.begun) < moment {
			n++
		}
	}
	return n
}

// usually notes how long a job has taken, if a runner has performed it: usual is what such jobs
// take, and 0 after another.
func (t *threads) usually(j *job, ran time.Duration) {
	switch {
	case !j.rules.byRunner:
		t.pace.usual = 0
	case t.pace.usual == 0:
		t.pace.usual = max(ran, 1)
	default:
		t.pace.usual += (ran - t.pace.usual) / 8
	}
}
