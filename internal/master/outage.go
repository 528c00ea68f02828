package master

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

const (
	// askAgain is how long after a round that Redis did not answer, or refused, the next one is.
	askAgain = time.Second
	// briefOutage is shorter than what people are told of: a connection that was closed.
	briefOutage = time.Second
)

// outage is a time in which Redis does not answer, or refuses what is asked of it.
type outage struct {
	since   time.Time
	trouble store.Trouble
}

// describe says for how long and why; of names those who notice it, "" = all do.
func (o *outage) describe(now time.Time, of string) string {
	verb := "away"
	if o.trouble.Refused {
		verb = "refusing"
	}
	return fmt.Sprintf("Redis %s for %s%s: %s", verb, now.Sub(o.since).Round(time.Second), of, o.trouble.Text)
}

// outage says in words what is wrong with Redis; "" = nothing is. This master's own calls count,
// and what its worker processes report: those look and beat more often, and may be the only ones
// that are refused. It lasts from when the first of them has noticed.
func (m *Master) outage() string {
	var worst *outage
	ready, hit := 0, 0
	for w := range m.workers {
		if !w.readyAt.IsZero() {
			ready++
		}
		if w.health.outage == nil {
			continue
		}
		if !w.readyAt.IsZero() {
			hit++
		}
		if worst == nil || w.health.outage.since.Before(worst.since) {
			worst = w.health.outage
		}
	}
	of := ""
	if own := m.recoverer.outage.Load(); own != nil {
		if worst != nil && worst.since.Before(own.since) {
			own = &outage{worst.since, own.trouble}
		}
		worst = own
	} else if worst != nil && hit < ready {
		of = fmt.Sprintf(" for %d of %s", max(hit, 1), plural(ready, "worker"))
	}
	if worst == nil || m.now.Sub(worst.since) < briefOutage {
		return ""
	}
	return worst.describe(m.now, of)
}

// hurryRound has Redis asked soon again while it is away, so that people see when it is back.
func (m *Master) hurryRound() {
	if soon := m.now.Add(askAgain); m.recoverer.outage.Load() != nil && m.roundAt.After(soon) {
		m.roundAt = soon
	}
}

// suffer notes that Redis does not answer a round, which has begun at an instant, or refuses it.
// It logs that once, and again when it becomes something else.
func (j *recoverer) suffer(ctx context.Context, what string, err error, began time.Time) {
	if ctx.Err() != nil {
		return // cut off by the end of the master, not by Redis
	}
	now := &outage{began, store.TroubleOf(err)}
	if last := j.outage.Load(); last != nil {
		now.since = last.since
	}
	j.outage.Store(now)
	if kind := what + now.trouble.Kind(); kind != j.afflicted {
		j.afflicted = kind
		j.log.Error(what, zap.Error(err))
	}
}
