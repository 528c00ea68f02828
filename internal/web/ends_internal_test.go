package web

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

type masterEnds map[string]string

func (m masterEnds) MasterList(context.Context) (map[string]map[string]string, error) {
	list := map[string]map[string]string{}
	for id, text := range m {
		list[id] = map[string]string{store.FieldEnds: text}
	}
	return list, nil
}

type unreadMaster struct{}

func (unreadMaster) MasterList(context.Context) (map[string]map[string]string, error) {
	return map[string]map[string]string{"a": {store.FieldUnread: "WRONGTYPE"}, "c": {store.FieldUnread: "WRONGTYPE"}}, nil
}

// Counts of masters are added up, each once, while masters come and go.
func TestEnds(t *testing.T) {
	t.Parallel()
	var e Ends
	look := func(m masterEnds) store.ProcEnds {
		var err error
		e, err = e.further(t.Context(), m)
		require.NoError(t, err)
		return e.ProcEnds
	}
	require.Zero(t, look(masterEnds{"a": "died=7 jobs=100", "old": ""}), "what was before")
	before := e
	want := store.ProcEnds{Died: 1, Recycled: [4]int64{20, 2, 0, 0}}
	require.Equal(t, want, look(masterEnds{"a": "died=8 jobs=120 memory=2", "old": ""}))
	require.Equal(t, want, look(masterEnds{}), "it has left, or does not reach Redis")
	want.Recycled[0] += 5
	require.Equal(t, want, look(masterEnds{"a": "died=8 jobs=125 memory=2"}), "it is back")
	want.Add(store.ProcEnds{Died: 1, Recycled: [4]int64{3, 0, 1, 4}})
	require.Equal(t, want, look(masterEnds{"a": "died=8 jobs=125 memory=2", "b": "died=1 jobs=3 age=1 other=4"}), "a new one")
	require.Equal(t, want, look(masterEnds{"a": "died=3 jobs=125 memory=2", "b": "junk jobs=3 =1 died=-4 age=1 other=99999999999999999999"}))
	// An unreadable entry adds nothing, and nothing is counted twice when it can be read again.
	var err error
	e, err = e.further(t.Context(), unreadMaster{})
	require.NoError(t, err)
	require.Equal(t, want, look(masterEnds{"a": "died=3 jobs=125 memory=2", "c": "died=9"}))
	want.Died++
	require.Equal(t, want, look(masterEnds{"a": "died=3 jobs=125 memory=2", "c": "died=10"}))
	require.Len(t, before.seen, 2, "an earlier sample is not changed")
}
