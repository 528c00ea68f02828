package workerproc

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// complainEvery is how often a lasting problem is logged.
const complainEvery = time.Minute

// troubles logs lasting problems, each once a minute. The loop owns all fields.
type troubles struct {
	log   *zap.Logger
	noted map[string]time.Time
	// away is since when looks or beats fail, zero while they succeed; why is the last error.
	away time.Time
	why  error
	// exchange is the exchanger's failure.
	exchange failing
}

// failing records since when and why calls fail. Any goroutine may use it.
type failing struct {
	state atomic.Pointer[fault]
}

type fault struct {
	since time.Time
	err   error
}

func (f *failing) note(err error) {
	if err == nil {
		f.state.Store(nil)
		return
	}
	now := &fault{time.Now(), err}
	if last := f.state.Load(); last != nil {
		now.since = last.since
	}
	f.state.Store(now)
}

// show adds the problem with Redis, if any, to a report.
func (t *troubles) show(m *proc.Message) {
	since, why := t.away, t.why
	if f := t.exchange.state.Load(); f != nil && (since.IsZero() || f.since.Before(since)) {
		since, why = f.since, f.err
	}
	if since.IsZero() {
		return
	}
	trouble := store.TroubleOf(why)
	m.Away, m.Refused, m.Trouble = max(time.Since(since), 1), trouble.Refused, trouble.Text
}

func newTroubles(log *zap.Logger) *troubles {
	return &troubles{log: log, noted: map[string]time.Time{}}
}

func (t *troubles) due(subject string) bool {
	if time.Since(t.noted[subject]) < complainEvery {
		return false
	}
	t.noted[subject] = time.Now()
	return true
}

func (t *troubles) complain(subject, text string, fields ...zap.Field) {
	if t.due(subject) {
		t.log.Error(text, fields...)
	}
}

// redisAway notes that a look or a beat got no answer from Redis or was refused.
func (t *troubles) redisAway(err error) {
	t.why = err
	if t.away.IsZero() {
		t.away = time.Now()
	}
}

func (t *troubles) redisBack() {
	if t.away.IsZero() {
		return
	}
	t.log.Info("redis is back", zap.Duration("after", time.Since(t.away)))
	t.away = time.Time{}
	delete(t.noted, "poll")
	delete(t.noted, "beat")
}

func printable(reason string) string { return wire.Printable(reason, 300) }
