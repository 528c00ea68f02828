package view_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// stream holds events, the newest first.
type stream []store.Event

func (s stream) Events(_ context.Context, before string, limit int) (out []store.Event, err error) {
	begin := 0
	for i, e := range s {
		if e.ID == before {
			begin = i + 1
		}
	}
	return s[begin:min(len(s), begin+min(limit, store.MaxEvents))], nil
}

func (s stream) EventsAfter(_ context.Context, after string, _ int) (out []store.Event, err error) {
	for _, e := range s {
		if e.ID == after {
			break
		}
		out = append([]store.Event{e}, out...)
	}
	return out, nil
}

func TestEvents(t *testing.T) {
	t.Parallel()
	var s stream
	for i := range 5000 {
		kind := store.EventDied
		if i%1000 == 7 {
			kind = store.EventDeployed
		}
		s = append(s, store.Event{ID: fmt.Sprintf("%d-0", 9000-i), Kind: kind, Count: int64(i % 2)})
	}
	for _, filter := range []view.EventFilter{{}, {Limit: 7}, {Limit: 1000}, {Limit: 1 << 30}, {Kinds: []string{"deployed"}, Limit: 2}, {Kinds: []string{"paused"}}} {
		var got []view.Event
		for pages := 0; ; pages++ {
			require.Less(t, pages, 1000)
			page, next, err := view.Events(t.Context(), s, filter)
			require.NoError(t, err)
			if filter.Limit > 0 {
				require.LessOrEqual(t, len(page), filter.Limit)
			}
			got = append(got, page...)
			if filter.Before = next; next == "" {
				break
			}
		}
		want := 5000
		if len(filter.Kinds) > 0 {
			want = map[string]int{"deployed": 5, "paused": 0}[filter.Kinds[0]]
		}
		require.Len(t, got, want, "%+v", filter)
		for i := 1; i < len(got); i++ {
			require.Greater(t, got[i-1].ID, got[i].ID)
		}
	}
	since, last, err := view.EventsSince(t.Context(), s, view.EventFilter{Kinds: []string{"deployed"}}, s[1500].ID)
	require.NoError(t, err)
	require.Equal(t, s[0].ID, last)
	require.Len(t, since, 2)
	require.Equal(t, s[1007].ID, since[0].ID)
}
