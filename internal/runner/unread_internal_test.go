package runner

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/sys/proc"
)

// A late reader still gets what a process wrote before its end.
func TestSaidBeforeTheEnd(t *testing.T) {
	t.Parallel()
	c, theirs := pair(t)
	_, err := theirs.WriteString(strings.Repeat("{}\n", 3000))
	require.NoError(t, err)
	require.NoError(t, c.file.SetReadDeadline(time.Now()))
	for range 3000 {
		line, err := c.line()
		require.NoError(t, err)
		require.Equal(t, "{}", string(line))
	}
	_, err = c.line()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// A slice's process that does not read is killed after its grace like any other.
func TestSliceOfOneThatDoesNotRead(t *testing.T) {
	t.Parallel()
	conn, theirs := pair(t)
	require.NoError(t, conn.file.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := conn.file.WriteString(strings.Repeat("x", 4<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the socket must be full")
	require.NoError(t, conn.file.SetWriteDeadline(time.Time{}))

	over := make(chan struct{})
	close(over)
	killed := killable{ended: make(chan struct{})}
	q := &process{conn: conn, slots: 2, handle: killed}
	c := &call{q: q, ctx: context.Background(), job: &resqued.Job{}, slice: &cmdslice.Slice{Over: over, Grace: time.Millisecond}}
	end := c.watch()
	<-killed.ended
	end()
	require.True(t, c.outOfTime)
	require.NoError(t, theirs.Close()) // the process is gone, and the write ends
}

// pair returns a process's socket and the process's end of it.
func pair(t *testing.T) (*conn, *os.File) {
	t.Helper()
	ours, theirs, err := proc.Socketpair(unix.SOCK_STREAM, "runner")
	require.NoError(t, err)
	c, err := newConn(ours)
	require.NoError(t, err)
	t.Cleanup(c.close)
	t.Cleanup(func() { _ = theirs.Close() })
	return c, theirs
}

type killable struct{ ended chan struct{} }

func (k killable) kill()                 { close(k.ended) }
func (k killable) await()                {}
func (k killable) reap() (string, error) { return "", nil }
