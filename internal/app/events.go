package app

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

const (
	// eventQueue is how many events wait to be written. More are lost: their sources must not
	// wait for Redis.
	eventQueue = 256
	// eventsPerMinute bounds the events of one kind that a daemon writes. The next one written
	// has the number of those left out.
	eventsPerMinute = 30
	// eventPatience bounds one write, eventParting all writes at the end.
	eventPatience, eventParting = 3 * time.Second, 2 * time.Second
)

type eventStore interface {
	NoteEvent(ctx context.Context, e store.Event) error
}

// recorder writes a daemon's events to Redis, on the goroutine of run.
type recorder struct {
	by     string
	store  eventStore
	log    *zap.Logger
	events chan store.Event

	minutes map[store.EventKind]*eventMinute
	said    string // the last error that was logged
}

// eventMinute counts the events of a kind since began, written and left out.
type eventMinute struct {
	began         time.Time
	written, left int
}

func newRecorder(by string, s eventStore, log *zap.Logger) *recorder {
	return &recorder{by: by, store: s, log: log.Named("events"), events: make(chan store.Event, eventQueue), minutes: map[store.EventKind]*eventMinute{}}
}

// Note takes an event. It never blocks, and any goroutine may call it.
func (r *recorder) Note(e store.Event) {
	e.By, e.Via = r.by, "daemon"
	select {
	case r.events <- e:
	default:
	}
}

// run writes events until ctx ends, and then the waiting ones.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case e := <-r.events:
			r.write(ctx, e)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventParting)
			defer cancel()
			for {
				select {
				case e := <-r.events:
					r.write(last, e)
				default:
					return
				}
			}
		}
	}
}

func (r *recorder) write(ctx context.Context, e store.Event) {
	m := r.minutes[e.Kind]
	if m == nil {
		m = &eventMinute{}
		r.minutes[e.Kind] = m
	}
	if now := time.Now(); now.Sub(m.began) >= time.Minute {
		m.began, m.written = now, 0
	}
	if m.written >= eventsPerMinute {
		m.left++
		return
	}
	m.written++
	if m.left > 0 {
		e.Text += fmt.Sprintf(" (and %d more of this kind before it)", m.left)
		m.left = 0
	}
	call, cancel := context.WithTimeout(ctx, eventPatience)
	defer cancel()
	err := r.store.NoteEvent(call, e)
	switch {
	case err == nil:
		r.said = ""
	case err.Error() != r.said && ctx.Err() == nil:
		r.said = err.Error()
		r.log.Warn("an event is missing in redis", zap.String("kind", string(e.Kind)), zap.Error(err))
	}
}
