package handler

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhatAPipeHolds: a reader that comes to a pipe after its deadline gets what was written before, and
// does not wait for a process that still holds the other end.
func TestWhatAPipeHolds(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	defer func() { require.NoError(t, w.Close()) }()
	written := strings.Repeat("x", 60_000)
	_, err = w.WriteString(written)
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now()))
	got, err := io.ReadAll(&lasting{pipe: r})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, written, string(got))
}
