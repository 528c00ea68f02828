package system_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// note is a line of a trace: what a job did while it held its lock, by the machine's clock,
// which does not depend on Redis.
type note struct {
	kind string // begin, end, act, told
	at   time.Duration
	pid  int
	// fence is 0 for jobs of gem workers.
	fence int64
	id    string
	key   string
}

// hold is the time from a job's begin to its end; that of a job whose process died has no end.
type hold struct {
	note
	end   time.Duration
	ended bool
}

// readTrace returns all notes of a directory, oldest first.
func readTrace(t *testing.T, dir string) []note {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	var notes []note
	for _, path := range files {
		notes = append(notes, readTraceFile(t, path)...)
	}
	slices.SortStableFunc(notes, func(a, b note) int { return cmp.Compare(a.at, b.at) })
	return notes
}

// readTraceFile reads the notes of one file except for an incomplete last one. Of a write
// across a page boundary the first part may be readable before the rest.
func readTraceFile(t *testing.T, path string) []note {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var notes []note
	for line := range strings.Lines(string(text)) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break
		}
		f := strings.SplitN(line, " ", 6)
		require.Len(t, f, 6, "%q", line)
		at, err := strconv.ParseInt(f[1], 10, 64)
		require.NoError(t, err)
		pid, err := strconv.Atoi(f[2])
		require.NoError(t, err)
		fence, err := strconv.ParseInt(f[3], 10, 64)
		require.NoError(t, err)
		notes = append(notes, note{kind: f[0], at: time.Duration(at), pid: pid, fence: fence, id: f[4], key: f[5]})
	}
	return notes
}

// holdsOf makes intervals of notes, oldest first. A process runs a job once with each fence.
// Jobs without fences have ids that are never used again.
func holdsOf(t *testing.T, notes []note) []hold {
	t.Helper()
	type run struct {
		pid   int
		fence int64
		id    string
	}
	open := map[run]int{}
	var holds []hold
	for _, n := range notes {
		r := run{n.pid, n.fence, n.id}
		switch n.kind {
		case "begin":
			_, twice := open[r]
			require.False(t, twice, "%+v began twice", n)
			open[r] = len(holds)
			holds = append(holds, hold{note: n})
		case "end":
			i, ok := open[r]
			require.True(t, ok, "%+v ended and did not begin", n)
			require.False(t, holds[i].ended, "%+v ended twice", n)
			holds[i].end, holds[i].ended = n.at, true
		}
	}
	return holds
}

// byKey groups intervals by their lock, oldest first.
func byKey(holds []hold) map[string][]hold {
	keys := map[string][]hold{}
	for _, h := range holds {
		keys[h.key] = append(keys[h.key], h)
	}
	return keys
}

// requireExclusion requires that no two jobs held a lock at the same time, and that fences grow
// in the order of the holders.
func requireExclusion(t *testing.T, holds []hold) {
	t.Helper()
	for key, list := range byKey(holds) {
		var last hold
		var fence int64
		for i, h := range list {
			require.True(t, h.ended, "%+v did not end", h)
			require.NotEmpty(t, key)
			if i > 0 {
				require.Less(t, last.end, h.at, "two jobs have held %s at the same time:\n%+v\n%+v", key, last, h)
			}
			last = h
			if h.fence > 0 {
				require.Greater(t, h.fence, fence, "the fences of %s:\n%+v", key, h)
				fence = h.fence
			}
		}
	}
}

// requireIDs requires that each of the jobs 0 … n-1 has run once.
func requireIDs(t *testing.T, holds []hold, n int) {
	t.Helper()
	ran := map[string]int{}
	for _, h := range holds {
		ran[h.id]++
	}
	require.Len(t, ran, n)
	for id, times := range ran {
		require.Equal(t, 1, times, "job %s ran %d times", id, times)
	}
}

// requireNoLocks requires that after the last job no keys of the lock layer are left, although
// the daemons still run.
func requireNoLocks(t *testing.T, d *harness.Daemon) {
	t.Helper()
	require.Empty(t, d.Keys("locket:*"))
	require.Empty(t, d.Keys("resqued:seen:*"))
	require.Empty(t, d.Keys("resqued:blocked:*"))
	require.Empty(t, d.Keys("resqued:held:*"))
	require.Empty(t, d.Keys("queue:*:uniqueue"))
	require.Empty(t, d.Keys("queue:*:start_at"))
}

// size returns full under make system, and small otherwise.
func size(small, full int) int {
	if harness.Full() {
		return full
	}
	return harness.Jobs(small)
}
