package system_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestFleetThatDisagrees runs two daemons whose settings would not keep the same jobs apart.
// Each logs that once, with both values. Daemons that agree log nothing about each other.
func TestFleetThatDisagrees(t *testing.T) {
	t.Parallel()
	space := redistest.Namespace(t)
	const lock = "handlers: {Work: {command: ['true'], lock: {args: [0]}}}\n"
	start := func(config string) *harness.Daemon {
		return harness.Start(t, harness.Options{Namespace: space, Config: config, Threads: 2})
	}
	const warning = "another daemon of this fleet has another setting"
	told := func(d *harness.Daemon) []string {
		var lines []string
		for line := range strings.Lines(d.Log()) {
			if strings.Contains(line, warning) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	// Each daemon writes its entry at its start, and reads those of others every five seconds.
	rounds := func(d *harness.Daemon, n int) {
		ids := d.Client.SMembers(t.Context(), d.Key("resqued:masters")).Val()
		for range n {
			for _, id := range ids {
				left := d.Client.PTTL(t.Context(), d.Key("resqued:master:"+id)).Val()
				proctest.Await(t, patience, func() bool {
					now := d.Client.PTTL(t.Context(), d.Key("resqued:master:"+id)).Val()
					renewed := now > left
					left = now
					return renewed
				}, "a round of a master")
			}
		}
	}
	a, twin := start(lock), start(lock+"job_lock_duration: 20\nheartbeat_frequency: 5\ninterval: 1\nmax_deaths: 9")
	rounds(a, 2)
	require.Empty(t, told(a))
	require.Empty(t, told(twin))

	b := start("job_lock_key: payload\nhandlers: {Work: {command: ['true']}}\n")
	for _, d := range []*harness.Daemon{a, twin, b} {
		d.AwaitLog(`"setting":"job_lock_key"`)
		d.AwaitLog(`"setting":"lock of class Work"`)
	}
	rounds(a, 2)
	require.Len(t, told(a), 2)
	require.Len(t, told(twin), 2)
	require.Len(t, told(b), 2, "the two others agree with each other")
	for _, line := range told(a) {
		switch {
		case strings.Contains(line, `"setting":"job_lock_key"`):
			require.Contains(t, line, `"here":"class-args"`)
			require.Contains(t, line, `"there":"payload"`)
		default:
			require.Contains(t, line, `"here":"args [0], store redis"`)
			require.Contains(t, line, `"there":"none"`)
		}
		require.Contains(t, line, `"other_host":`)
	}
}
