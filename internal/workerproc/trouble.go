package workerproc

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/wire"
)

// complainEvery is how often a lasting trouble is logged.
const complainEvery = time.Minute

// troubles logs lasting troubles, each once a minute. The loop owns all fields.
type troubles struct {
	log   *zap.Logger
	noted map[string]time.Time
	// away is since when neither looks nor beats get through; zero while they do.
	away time.Time
}

func newTroubles(log *zap.Logger) *troubles {
	return &troubles{log: log, noted: map[string]time.Time{}}
}

// due reports whether a subject may be logged now, and notes that it is.
func (t *troubles) due(subject string) bool {
	if time.Since(t.noted[subject]) < complainEvery {
		return false
	}
	t.noted[subject] = time.Now()
	return true
}

// complain logs an error, once a minute for each subject.
func (t *troubles) complain(subject, text string, fields ...zap.Field) {
	if t.due(subject) {
		t.log.Error(text, fields...)
	}
}

// redisAway notes that Redis has not answered a look or a beat, or has refused it.
func (t *troubles) redisAway() {
	if t.away.IsZero() {
		t.away = time.Now()
	}
}

// redisBack notes, and logs, that Redis answers again. The next trouble is logged at once.
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
