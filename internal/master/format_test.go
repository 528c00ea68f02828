package master

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// A daemon neither recovers nor sweeps what one with another format has left, and logs that
// once.
func TestFormatsOfOthers(t *testing.T) {
	t.Parallel()

	bubble(t, "a dead master's process on this machine that writes in another format is left alone", func(t *testing.T) {
		const newer, ours = "h:b:5-5:0.0", "h:b:5-5:1.1"
		f := setup(t, func(f *fixture, _ *Config) {
			f.sys.dead = map[string]bool{"h:b:5-5": true}
			traces := procfs.Traces{PID: 4711, Start: 1}.Fields()
			traces[store.InfoFormat] = "99"
			f.redis.traces = map[string]map[string]string{newer: traces}
			f.redis.procs = []string{newer, ours}
			f.redis.hold(newer, reserved("a", 0))
			f.redis.hold(ours, reserved("b", 0))
		})
		f.up(2)
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"b requeue"}, f.redis.seen())
		require.False(t, f.sys.hasSwept(newer))
		require.NotContains(t, f.redis.fenced, newer)
	})

	bubble(t, "others are named once", func(t *testing.T) {
		f := setup(t, func(f *fixture, _ *Config) {
			f.redis.unread = []store.Unread{
				{ID: "far:away:7-8", Format: "99", Version: "v9\x1b", Host: "far"},
				{ID: "far:away:7-8:0.1", Format: "99", Version: "v9", Host: "far"},
				{ID: "odd", Format: "99"},
			}
		})
		f.up(2)
		f.wait(roundEvery * 5)
		all := f.logs.FilterMessageSnippet("in a format that this version does not read").All()
		require.Len(t, all, 3)
		said := all[0].ContextMap()
		require.Equal(t, map[string]any{
			"other": "far:away:7-8", "other_host": "far", "other_version": `v9\x1b`, "other_format": "99", "reads": "format 1",
		}, said)
		require.Contains(t, all[1].Message, "a worker process whose lease is past")
	})
}
