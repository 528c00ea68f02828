package logqueue

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reader is the other end of a log: it takes a line when told to.
type reader struct {
	mu    sync.Mutex
	text  bytes.Buffer
	stall chan struct{}
}

func (r *reader) Write(p []byte) (int, error) {
	if r.stall != nil {
		<-r.stall
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *reader) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

func TestWriter(t *testing.T) {
	t.Run("lines are written in order", func(t *testing.T) {
		r := &reader{}
		w := New(r, 0, nil)
		var want []string
		for i := range 1000 {
			_, err := fmt.Fprintf(w, "line %d\n", i)
			require.NoError(t, err)
			want = append(want, fmt.Sprintf("line %d", i))
		}
		require.NoError(t, w.Sync())
		require.Equal(t, want, r.lines())
		require.NoError(t, w.Sync())
	})

	t.Run("the caller's buffer may be used again", func(t *testing.T) {
		r := &reader{stall: make(chan struct{})}
		w := New(r, 0, nil)
		line := []byte("first\n")
		_, _ = w.Write(line)
		copy(line, "other\n")
		close(r.stall)
		require.NoError(t, w.Sync())
		require.Equal(t, []string{"first"}, r.lines())
	})

	t.Run("a reader that stalls holds up nobody, and what was dropped is counted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &reader{stall: make(chan struct{})}
			var w *Writer
			w = New(r, 100, func(lines int) { _, _ = fmt.Fprintf(w, "%d dropped\n", lines) })
			for i := range 1000 {
				_, _ = fmt.Fprintf(w, "line %03d.\n", i) // 10 bytes
			}
			require.ErrorIs(t, w.Sync(), ErrStalled)
			close(r.stall)
			require.NoError(t, w.Sync())
			got := r.lines()
			require.Equal(t, []string{"line 000.", "line 009.", "990 dropped"}, []string{got[0], got[9], got[10]})
			require.Len(t, got, 11)
		})
	})

	t.Run("a line larger than the limit passes alone", func(t *testing.T) {
		r := &reader{}
		w := New(r, 10, nil)
		_, _ = w.Write([]byte(strings.Repeat("x", 100) + "\n"))
		require.NoError(t, w.Sync())
		require.Len(t, r.lines()[0], 100)
	})
}
