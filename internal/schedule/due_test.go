package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDue(t *testing.T) {
	t.Parallel()
	minutely, err := ParseCron("* * * * *", "UTC")
	require.NoError(t, err)
	second, err := ParseEvery("1s", "")
	require.NoError(t, err)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name    string
		timing  Timing
		since   time.Duration
		catchUp string
		ticks   int
		missed  int
	}{
		{"nothing yet", minutely, 30 * time.Second, CatchUpAll, 1, 0},
		{"late is not missed", second, time.Minute, CatchUpNone, 60, 0},
		{"missed ticks are let be", second, time.Hour, CatchUpNone, 61, 3539},
		{"the last of them is made up for", second, time.Hour, CatchUpLast, 62, 3538},
		{"all of them are", minutely, 3 * time.Hour, CatchUpAll, 180, 0},
		{"but not without end", second, 3 * time.Hour, CatchUpAll, 1061, 10800 - 1061},
		{"nor after years", second, 9 * 365 * 24 * time.Hour, CatchUpAll, 1061, -1},
		{"of an expression either", minutely, 9 * 365 * 24 * time.Hour, CatchUpLast, 3, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			due := tc.timing.Due(noon.Add(-tc.since), noon, tc.catchUp)
			require.Len(t, due.Ticks, tc.ticks)
			if tc.missed >= 0 {
				require.Equal(t, tc.missed, due.Missed)
			} else {
				require.Greater(t, due.Missed, 1000)
			}
			require.Equal(t, noon, due.Last)
		})
	}
	require.Zero(t, minutely.Due(noon, noon.Add(59*time.Second), CatchUpLast))
}

// Looked at in however many steps, no tick is left out and none comes twice.
func TestDueInSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		timing, err := ParseCron(rapid.SampledFrom([]string{"*/7 * * * * *", "* * * * *", "*/5 1-3 * * *", "30 2 * * *"}).Draw(t, "cron"), "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "second")) * time.Second)
		now, at := began, began
		seen, missed := map[time.Time]bool{}, 0
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")*rapid.SampledFrom([]int{1, 100}).Draw(t, "factor")) * time.Millisecond)
			due := timing.Due(at, now, CatchUpAll)
			for _, tick := range due.Ticks {
				if seen[tick] || tick.After(now) || !tick.After(at) {
					t.Fatalf("%s at %s", tick, now)
				}
				seen[tick] = true
			}
			missed += due.Missed
			if !due.Last.IsZero() {
				at = due.Last
			}
		}
		n := 0
		for tick := timing.Next(began); !tick.After(now); tick = timing.Next(tick) {
			n++
		}
		if n != len(seen)+missed {
			t.Fatalf("%d ticks, %d seen, %d missed", n, len(seen), missed)
		}
	})
}
