package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(dir, "host:1:2-3:0.1")
	require.NoError(t, err)
	tail := NewTail(dir)
	next := func() []Entry {
		entries, err := tail.Next()
		require.NoError(t, err)
		return entries
	}
	require.Empty(t, next())

	require.NoError(t, w.Write(Entry{What: Start, ID: "chaos-1", Lock: "k", Fence: 7}))
	require.NoError(t, w.Write(Entry{What: End, ID: "chaos-1"}))
	entries := next()
	require.Len(t, entries, 2)
	require.Equal(t, "k", entries[0].Lock)
	require.Equal(t, os.Getpid(), entries[0].PID)
	require.Less(t, entries[0].At, entries[1].At)
	require.Empty(t, next())

	// An incomplete line is not returned.
	path := filepath.Join(dir, "other.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"e":"start","id":"cha`), 0o600))
	require.Empty(t, next())
	require.NoError(t, os.WriteFile(path, []byte(`{"e":"start","id":"chaos-2"}`+"\n"), 0o600))
	require.Equal(t, "chaos-2", next()[0].ID)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.jsonl"), []byte("no\n"), 0o600))
	_, err = tail.Next()
	require.ErrorContains(t, err, "bad.jsonl")
}

// TestTailIsLazy checks that a file that was quiet for long is read now and then, and in the
// end.
func TestTailIsLazy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "p.jsonl")
	add := func() {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(`{"e":"start"}` + "\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	tail := NewTail(dir)
	count := func(read func() ([]Entry, error)) int {
		entries, err := read()
		require.NoError(t, err)
		return len(entries)
	}
	add()
	require.Equal(t, 1, count(tail.Next))
	tail.files["p.jsonl"].grown = time.Now().Add(-time.Hour)
	add()
	require.Zero(t, count(tail.Next))
	require.Equal(t, 1, count(tail.All))
	add()
	require.Equal(t, 1, count(tail.Next), "it grows again")
}
