package program

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reader that comes to a pipe after its deadline gets what was written before, without waiting
// for a process that still holds the other end.
func TestWhatAPipeHolds(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	written := strings.Repeat("x", 60_000)
	_, err = w.WriteString(written)
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now()))
	in := &Lasting{File: r}
	got, err := io.ReadAll(in)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, written, string(got))

	require.NoError(t, w.Close())
	_, err = in.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
