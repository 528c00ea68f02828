package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/wire"
)

const (
	keyEvents = "resqued:events"

	// keptEvents is about how many events are kept. Events are never written per job.
	keptEvents = 10_000
	// MaxEventText bounds an event's text in bytes, maxEventField each other part.
	MaxEventText, maxEventField = 500, 200
	// MaxEvents bounds the events of one request.
	MaxEvents = 1000
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	// By daemons.
	EventStarted  EventKind = "started"
	EventStopped  EventKind = "stopped"
	EventDeployed EventKind = "deployed" // a new version has taken over
	EventReloaded EventKind = "reloaded"
	EventRefused  EventKind = "refused" // a reload or a new version; nothing has changed
	EventPaused   EventKind = "paused"  // a daemon, or a queue
	EventResumed  EventKind = "resumed"
	EventRecycled EventKind = "recycled" // a worker process, for its memory or its age
	EventDied     EventKind = "died"     // a worker process, or a runner
	EventKilled   EventKind = "killed"   // jobs were told to stop
	EventLockLost EventKind = "lock lost"
	EventHostDead EventKind = "host dead" // reported by a hook or a person
	// By people.
	EventPurged   EventKind = "purged"
	EventMoved    EventKind = "moved"
	EventRemoved  EventKind = "removed"
	EventRetried  EventKind = "retried"
	EventReleased EventKind = "released" // a lock
	EventRepaired EventKind = "repaired"
	EventRan      EventKind = "ran" // delayed jobs or a schedule, early
	EventOrdered  EventKind = "ordered"
	EventRequeued EventKind = "requeued" // a long job
	EventCanceled EventKind = "cancelled"
)

// EventKinds are all kinds.
var EventKinds = []EventKind{
	EventStarted, EventStopped, EventDeployed, EventReloaded, EventRefused, EventPaused, EventResumed, EventRecycled, EventDied,
	EventKilled, EventLockLost, EventHostDead, EventPurged, EventMoved, EventRemoved, EventRetried, EventReleased, EventRepaired, EventRan, EventOrdered,
	EventRequeued, EventCanceled,
}

// Event is something that happened to a daemon, or that a person did.
type Event struct {
	// ID is the id in the stream, At when Redis received it.
	ID string
	At time.Time

	Kind EventKind
	// By is the actor: a master or "user@host". Via is the tool: "daemon", "cli", "web".
	By, Via string
	// Subject is what it concerns: a process, a queue, a lock.
	Subject string
	// Text describes it in words.
	Text string
	// Count is how many jobs or other things it concerns; 0 = not about a number.
	Count int64
}

// NoteEvent writes an event, once: after an error it is not repeated.
func (s *Store) NoteEvent(ctx context.Context, e Event) error {
	values := []any{"kind", clip(string(e.Kind), maxEventField)}
	for _, f := range [][2]string{
		{"by", clip(e.By, maxEventField)}, {"via", clip(e.Via, maxEventField)}, {"subject", clip(e.Subject, maxEventField)}, {"text", clip(e.Text, MaxEventText)},
	} {
		if f[1] != "" {
			values = append(values, f[0], f[1])
		}
	}
	if e.Count > 0 {
		values = append(values, "count", e.Count)
	}
	err := s.db.Write.XAdd(ctx, &redis.XAddArgs{Stream: s.db.Key(keyEvents), MaxLen: keptEvents, Approx: true, Values: values}).Err()
	if err != nil {
		return fmt.Errorf("note the event %q: %w", e.Kind, err)
	}
	return nil
}

// clip cuts a long text, and makes it one printable line.
func clip(text string, most int) string { return wire.Printable(text, most) }

// Events returns at most limit events before the one with an id, the newest first; "" = from the newest.
func (s *Store) Events(ctx context.Context, before string, limit int) ([]Event, error) {
	return events(before, limit, func(from string, n int64) *redis.XMessageSliceCmd {
		return s.db.Read.XRevRangeN(ctx, s.db.Key(keyEvents), cmp.Or(from, "+"), "-", n)
	})
}

// EventsAfter returns the events after the one with an id, the oldest first; "" = from the oldest.
func (s *Store) EventsAfter(ctx context.Context, after string, limit int) ([]Event, error) {
	return events(after, limit, func(from string, n int64) *redis.XMessageSliceCmd {
		return s.db.Read.XRangeN(ctx, s.db.Key(keyEvents), cmp.Or(from, "-"), "+", n)
	})
}

// events reads at most limit events that follow the one with an id. A range without it, "(", needs Redis 6.2.
func events(id string, limit int, read func(from string, n int64) *redis.XMessageSliceCmd) ([]Event, error) {
	if id != "" {
		ms, n, ok := splitEventID(id)
		if !ok {
			return nil, &EventIDError{id}
		}
		id = fmt.Sprintf("%d-%d", ms, n)
	}
	limit = min(max(limit, 1), MaxEvents)
	entries, err := read(id, int64(limit)+1).Result()
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e redis.XMessage) bool { return e.ID == id })
	return eventsOf(entries[:min(len(entries), limit)]), nil
}

// EventIDError says that a text is not an event's id.
type EventIDError struct{ ID string }

func (e *EventIDError) Error() string {
	return fmt.Sprintf("%q is not an id of an event; it has the form 1764000000000-0", e.ID)
}

func splitEventID(id string) (ms, n uint64, ok bool) {
	first, second, found := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(first, 10, 64)
	if err != nil || !found {
		return 0, 0, false
	}
	n, err = strconv.ParseUint(second, 10, 64)
	return ms, n, err == nil
}

// eventsOf reads entries of the stream. They may come from any program, so unknown parts are dropped and long
// ones cut.
func eventsOf(entries []redis.XMessage) []Event {
	out := make([]Event, 0, len(entries))
	for _, entry := range entries {
		field := func(name string, most int) string {
			text, _ := entry.Values[name].(string)
			return clip(text, most)
		}
		e := Event{
			ID: entry.ID, Kind: EventKind(field("kind", maxEventField)), By: field("by", maxEventField), Via: field("via", maxEventField),
			Subject: field("subject", maxEventField), Text: field("text", MaxEventText),
		}
		ms, _, _ := splitEventID(entry.ID)
		e.At = time.UnixMilli(int64(ms)).UTC()
		if n, err := strconv.ParseInt(field("count", maxEventField), 10, 64); err == nil && n > 0 {
			e.Count = n
		}
		out = append(out, e)
	}
	return out
}
