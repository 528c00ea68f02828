package workerproc

import "time"

// lingers bounds how long a job's end waits for its neighbours', so that one call takes several.
// Only jobs of runners wait: functions that end at once end together anyway (see gather), but a
// runner is another process, and a call costs more than a short job.
const lingers = 4 * time.Millisecond

// linger reports whether ends should wait for jobs that have just begun, and if so wakes the
// loop in time. They wait no longer than two such jobs take.
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

// fledglings returns how many jobs have begun within moment.
func (t *threads) fledglings(now time.Time, moment time.Duration) (n int) {
	for _, j := range t.jobs {
		if now.Sub(j.begun) < moment {
			n++
		}
	}
	return n
}

// usually updates usual, the usual time of jobs performed by runners; another job resets it to
// 0.
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
