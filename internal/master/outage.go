package master

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

const (
	// askAgain is the time to the next round after Redis failed to answer one, or refused it.
	askAgain = time.Second
	// briefOutage is the limit below which an outage is not shown: a connection was closed.
	briefOutage = time.Second
)

// outage is a time in which Redis does not answer or refuses calls.
type outage struct {
	since   time.Time
	trouble store.Trouble
}

// describe says how long and why; of names the affected processes, "" = all.
func (o *outage) describe(now time.Time, of string) string {
	verb := "away"
	if o.trouble.Refused {
		verb = "refusing"
	}
	return fmt.Sprintf("Redis %s for %s%s: %s", verb, now.Sub(o.since).Round(time.Second), of, o.trouble.Text)
}

// outage describes what is wrong with Redis; "" = nothing. Apart from this master's own calls,
// it uses the reports of worker processes: they call more often, and may be the only ones
// refused. An outage begins when the first of them notices.
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

// hurryRound makes the next round come soon while Redis is away, so that people see when it is
// back.
func (m *Master) hurryRound() {
	if soon := m.now.Add(askAgain); m.recoverer.outage.Load() != nil && m.roundAt.After(soon) {
		m.roundAt = soon
	}
}

// suffer notes that Redis did not answer or refused a round that began at began. It logs each
// kind of problem once.
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
