package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/store"
)

// eventLog keeps events.
type eventLog struct {
	events []store.Event
	err    error
	hangs  bool
}

func (l *eventLog) NoteEvent(ctx context.Context, e store.Event) error {
	if l.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	l.events = append(l.events, e)
	return l.err
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	play := func(t *testing.T, l *eventLog, work func(r *recorder)) (took time.Duration, logged int) {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			ctx, cancel := context.WithCancel(t.Context())
			r, began := newRecorder("vm", l, zap.New(core)), time.Now()
			go func() {
				defer cancel()
				work(r)
			}()
			r.run(ctx)
			took, logged = time.Since(began), logs.Len()
		})
		return took, logged
	}

	t.Run("each is written once, also those at the end, and says whose it is", func(t *testing.T) {
		t.Parallel()
		l := &eventLog{}
		play(t, l, func(r *recorder) {
			r.Note(store.Event{Kind: store.EventStarted})
			<-time.After(time.Second)
			r.Note(store.Event{Kind: store.EventStopped})
		})
		require.Equal(t, []store.Event{{Kind: "started", By: "vm", Via: "daemon"}, {Kind: "stopped", By: "vm", Via: "daemon"}}, l.events)
	})

	t.Run("there are so many of a kind in a minute, and the next one says how many were left out", func(t *testing.T) {
		t.Parallel()
		l := &eventLog{}
		play(t, l, func(r *recorder) {
			for range 100 {
				r.Note(store.Event{Kind: store.EventDied})
				<-time.After(time.Millisecond)
			}
			r.Note(store.Event{Kind: store.EventStopped})
			<-time.After(time.Minute)
			r.Note(store.Event{Kind: store.EventDied, Text: "exit code 9"})
		})
		require.Len(t, l.events, eventsPerMinute+2)
		require.Equal(t, store.EventStopped, l.events[eventsPerMinute].Kind)
		require.Equal(t, "exit code 9 (and 70 more of this kind before it)", l.events[eventsPerMinute+1].Text)
	})

	t.Run("an error is logged once and nothing is repeated", func(t *testing.T) {
		t.Parallel()
		l := &eventLog{err: errors.New("no room")}
		_, logged := play(t, l, func(r *recorder) {
			for range 10 {
				r.Note(store.Event{Kind: store.EventDied})
			}
		})
		require.Len(t, l.events, 10)
		require.LessOrEqual(t, logged, 1)
	})

	t.Run("a redis that hangs holds up nobody for long", func(t *testing.T) {
		t.Parallel()
		l := &eventLog{hangs: true}
		took, _ := play(t, l, func(r *recorder) {
			for range 10 * eventQueue {
				r.Note(store.Event{Kind: store.EventDied})
			}
		})
		require.LessOrEqual(t, took, eventParting+eventPatience)
	})
}
