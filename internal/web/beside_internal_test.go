package web

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPanicsBeside: a panic in background work harms nothing else, as in a request.
func TestPanicsBeside(t *testing.T) {
	t.Parallel()
	b := newBeside()
	o := operations{beside: b}
	id, err := o.start("Retry 2 failures", 2, "", func(context.Context, func(int)) (int, error) { panic("broken") })
	require.NoError(t, err)
	s := newSampler(Options{}, b) // without a store
	for range 2 {
		v := s.await(s.begin(), 0)
		require.Equal(t, errBug, v.Queues.Err)
		require.False(t, v.At.IsZero(), "the next one is not taken at once")
	}
	server := Server{sampler: s, beside: b, groups: grouping{turn: make(chan struct{}, 1), busy: true}}
	require.True(t, b.run(server.groupMore))
	b.stop()
	one, err := o.find(id)
	require.NoError(t, err)
	require.True(t, one.state().Ended)
	require.Contains(t, one.state().Error, "bug of resqued")
	require.False(t, server.groups.busy)
	require.Equal(t, errBug, server.groups.part.Err)
}
