package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
)

// Event is something that happened to daemons, or that a user did.
type Event struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// By is a daemon or user@host, Via what it used: daemon, cli, web.
	By      string `json:"by"`
	Via     string `json:"via"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// Count is how many jobs or other things the event concerns; null = it has no count.
	Count *int64 `json:"count"`
}

// Line returns the subject with the text.
func (e Event) Line() string {
	said := DaemonText(e.Subject)
	if said != "" && e.Text != "" {
		said += ": "
	}
	return said + e.Text
}

// Urgent reports whether the event may have cost a job or a process.
func (e Event) Urgent() bool {
	kind := store.EventKind(e.Kind)
	return kind == store.EventDied || kind == store.EventLockLost || kind == store.EventHostDead
}

// EventStore is what the view of events needs of the store.
type EventStore interface {
	Events(ctx context.Context, before string, limit int) ([]store.Event, error)
	EventsAfter(ctx context.Context, after string, limit int) ([]store.Event, error)
}

// EventFilter selects events.
type EventFilter struct {
	// Kinds are the wanted kinds; none = all.
	Kinds []string
	// Before selects events older than the one with this id; "" = all.
	Before string
	// Limit is the maximum number of events; 0 = as many as one read returns.
	Limit int
}

// eventReads limits the reads of one query: events of a rare kind may be far apart.
const eventReads = 12

// Events returns events, the newest first, and the Before of the following page, "" at the end.
func Events(ctx context.Context, s EventStore, f EventFilter) (events []Event, next string, err error) {
	limit := f.Limit
	if limit <= 0 || limit > store.MaxEvents {
		limit = store.MaxEvents
	}
	before := f.Before
	for range eventReads {
		size := limit + 1
		if len(f.Kinds) > 0 {
			size = store.MaxEvents
		}
		part, err := s.Events(ctx, before, size)
		if err != nil {
			return nil, "", err
		}
		for _, e := range part {
			if !f.meant(e) {
				continue
			}
			if len(events) == limit {
				return events, events[limit-1].ID, nil
			}
			events = append(events, eventOf(redact.From(ctx), e))
		}
		if len(part) < min(size, store.MaxEvents) {
			return events, "", nil
		}
		before = part[len(part)-1].ID
	}
	return events, before, nil
}

// EventsSince returns the events after an id, "" = all, the oldest first, and the id to continue
// from.
func EventsSince(ctx context.Context, s EventStore, f EventFilter, after string) (events []Event, last string, err error) {
	part, err := s.EventsAfter(ctx, after, store.MaxEvents)
	if err != nil {
		return nil, after, err
	}
	for _, e := range part {
		if after = e.ID; f.meant(e) {
			events = append(events, eventOf(redact.From(ctx), e))
		}
	}
	return events, after, nil
}

func (f EventFilter) meant(e store.Event) bool {
	return len(f.Kinds) == 0 || slices.Contains(f.Kinds, string(e.Kind))
}

func eventOf(rules *redact.Rules, e store.Event) Event {
	if rules.Everything() {
		e = withoutKeys(e)
	}
	v := Event{ID: e.ID, At: e.At, Kind: string(e.Kind), By: e.By, Via: e.Via, Subject: e.Subject, Text: e.Text}
	if e.Count > 0 {
		v.Count = &e.Count
	}
	return v
}

// withoutKeys removes lock keys, which contain arguments, and conditions on jobs from an event. Writers leave
// hidden keys out; this is for visitors that may see no arguments at all.
func withoutKeys(e store.Event) store.Event {
	switch e.Kind {
	case store.EventLockLost:
		if i := strings.Index(e.Text, resqued.ErrLockLost.Error()); i >= 0 {
			e.Text = e.Text[:i+len(resqued.ErrLockLost.Error())]
		}
	case store.EventReleased:
		e.Subject = "lock " + redact.Shown
	case store.EventRetried, store.EventRemoved, store.EventMoved, store.EventRan:
		e.Text, _, _ = strings.Cut(e.Text, ": ") // the conditions follow, perhaps on arguments
	}
	return e
}
