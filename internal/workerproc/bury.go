package workerproc

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
)

const (
	// buryFrom and buryTo bound the pause between two tries to record a job's death.
	buryFrom = 50 * time.Millisecond
	buryTo   = 2 * time.Second
)

// recordDeath handles a job whose runner has died, on its thread's goroutine. A job that may not
// run again has failed. Others go back to the head of their queue, like the jobs of a dead
// process, before this returns: until then the job is in hand and keeps its lock.
func (t *threads) recordDeath(j *job, out thread.Outcome) thread.Outcome {
	policy := t.cfg.DeathPolicy
	death, _ := errors.AsType[*jobctx.DeathError](out.Err)
	j.runnerDied = !death.Earlier
	final := ""
	switch {
	case j.rules.resumes:
	case death.Discarded:
		out.Result = thread.Discarded
		return out
	case death.Told:
		final = store.ToldOnly
	case j.rules.atMostOnce:
		final = store.OnceOnly
	case policy.Fail:
		final = store.FailsOnly
	}
	if why := store.Fatal(j.Reserved, final, max(1, policy.MaxDeaths), true); why != "" && !j.rules.resumes {
		out.Result, out.Message = thread.Failed, out.Message+"; "+why
		return out
	}
	v := store.Verdict{Token: j.Token, Action: store.Suspect}
	said := time.Time{}
	for pause := buryFrom; ; pause = min(2*pause, buryTo) {
		err := t.d.Store.Bury(t.work, t.id.proc, v)
		if err == nil || errors.Is(err, store.ErrFenced) || t.work.Err() != nil {
			break // recorded, or left to recovery
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.log.Error("the death of a job cannot be recorded; it stays in flight until that is possible", append(jobFields(j), zap.Error(err))...)
		}
		select {
		case <-t.work.Done():
		case <-time.After(pause):
		}
	}
	return out
}

func (t *threads) buried(j *job, out thread.Outcome) {
	t.done++
	t.d.Stats.Count(statsd.RunnerDied, 1)
	t.counted.end(j.countedClass(), j.Queue, thread.Requeued, out.Ran, 0)
	t.log.Warn("a runner died with a job, which runs again", append(jobFields(j), zap.Int("deaths", j.Deaths+1), zap.Duration("ran", out.Ran),
		zap.String("error", out.Message))...)
	if t.d.Observe != nil {
		t.d.Observe(Event{Job: &j.job, Outcome: out})
	}
}
