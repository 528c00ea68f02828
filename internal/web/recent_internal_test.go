package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web/pages"
)

// TestRecent: a hanging read delays a request once, by the wait for newer data; then older data is
// shown as such.
func TestRecent(t *testing.T) {
	t.Parallel()
	s := newSampler(Options{}, newBeside())
	var c recent[int]
	get := func(ctx context.Context, read func(ctx context.Context) (int, error)) pages.Widget[int] {
		return c.get(ctx, s, 0, read)
	}
	n := func(n int) func(ctx context.Context) (int, error) {
		return func(context.Context) (int, error) { return n, nil }
	}
	require.Equal(t, 1, get(t.Context(), n(1)).Data)

	let := make(chan struct{})
	hangs := func(context.Context) (int, error) { <-let; return 2, nil }
	request := withPatience(t.Context())
	p := get(request, hangs)
	require.Equal(t, 1, p.Data)
	require.True(t, p.OK)
	require.Equal(t, errNotYet, p.Err)
	begun := time.Now()
	for range 50 {
		require.Equal(t, errNotYet, get(request, n(3)).Err)
	}
	require.Less(t, time.Since(begun), 50*sampleWait, "a request waits once")

	// An act is not answered with what was read before it, even if that comes late.
	s.outdate()
	require.Equal(t, 4, get(withPatience(t.Context()), n(4)).Data)
	first := c.begun
	close(let)
	require.Equal(t, 5, get(withPatience(t.Context()), n(5)).Data)
	require.True(t, c.begun.After(first))

	p = get(t.Context(), func(context.Context) (int, error) { return 0, errors.New("refused") })
	require.Equal(t, 5, p.Data)
	require.EqualError(t, p.Err, "refused")
	require.Panics(t, func() { get(t.Context(), func(context.Context) (int, error) { panic("broken") }) }, "as if the request had read it itself")
	require.Equal(t, 6, get(t.Context(), n(6)).Data)
}

// TestParts: the most recently used parts of pages are remembered.
func TestParts(t *testing.T) {
	t.Parallel()
	var c parts
	made := 0
	of := func(i int) { c.of(fmt.Sprint(i), func() any { made++; return made }) }
	for i := range 2 * remembered {
		of(i)
		of(0)
	}
	require.Len(t, c.all, remembered)
	require.Equal(t, 2*remembered, made, "what is used stays")
	c.all[3].used = time.Now().Add(-2 * rememberedFor)
	of(0)
	require.Len(t, c.all, remembered-1)
}

// TestKeptAfterAnOutage: data that a silent Redis did not deliver is reread soon, as the attempt cost
// Redis nothing.
func TestKeptAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := newSampler(Options{}, newBeside())
	var c recent[int]
	p := c.kept(t.Context(), s, func(ctx context.Context) (int, error) {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
		return 0, io.EOF
	})
	require.Error(t, p.Err)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Less(t, time.Until(c.next), 2*sampleEvery)
}
