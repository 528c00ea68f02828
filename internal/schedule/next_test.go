package schedule

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const layout = "2006-01-02 15:04:05 -0700"

func ticks(t *testing.T, text, zone, from string, n int) (out []string) {
	t.Helper()
	timing, err := ParseCron(text, zone)
	require.NoError(t, err)
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	at, err := time.ParseInLocation("2006-01-02 15:04", from, loc)
	require.NoError(t, err)
	for range n {
		at = timing.Next(at)
		out = append(out, at.Format(layout))
	}
	return out
}

// TestBuiltInZones runs all tests with the database of zones that is built in: an image from
// scratch has no other one.
func TestBuiltInZones(t *testing.T) {
	t.Parallel()
	if os.Getenv("ZONEINFO") != "" {
		t.Skip("they run with it")
	}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.timeout=1m")
	cmd.Env = append(cmd.Environ(), "ZONEINFO="+filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestTurnOfTheYear: the last day of a leap year has an end, also after 2037, up to which most
// databases list all changes.
func TestTurnOfTheYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "America/Santiago", "Africa/Cairo"} {
		for _, year := range []string{"2024", "2028", "2040"} {
			got := ticks(t, "0 2 * * *", zone, year+"-12-31 01:30", 3)
			require.Equal(t, year+"-12-31 02:00:00", got[0][:19], zone)
			require.Equal(t, "-01-01 02:00:00", got[1][4:19], zone)
			require.Equal(t, "-01-02 02:00:00", got[2][4:19], zone)
		}
	}
}

// Schedules tick as documented when daylight saving time begins and ends.
func TestDaylightSaving(t *testing.T) {
	t.Parallel()
	const berlin, newYork, saoPaulo, lordHowe, apia = "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"
	for _, tc := range []struct {
		name, cron, zone, from string
		want                   []string
	}{
		{"spring: an hour that is left out ticks when it is over", "30 2 * * *", berlin, "2026-03-28 12:00", []string{
			"2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200",
		}},
		{"spring: all that was left out ticks as one", "*/10 2 * * *", berlin, "2026-03-28 12:00", []string{
			"2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200",
		}},
		{"spring: what ticks at its end anyhow does so once", "0 2,3 * * *", berlin, "2026-03-28 12:00", []string{
			"2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200", "2026-03-30 03:00:00 +0200",
		}},
		{"spring: every hour goes on", "30 * * * *", berlin, "2026-03-29 00:45", []string{
			"2026-03-29 01:30:00 +0100", "2026-03-29 03:30:00 +0200", "2026-03-29 04:30:00 +0200",
		}},
		{"spring: every quarter of an hour, too", "*/15 * * * *", berlin, "2026-03-29 01:30", []string{
			"2026-03-29 01:45:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-29 03:15:00 +0200",
		}},
		{"spring: what is not near it does not move", "0 4 * * *", berlin, "2026-03-28 12:00", []string{
			"2026-03-29 04:00:00 +0200", "2026-03-30 04:00:00 +0200",
		}},
		{"spring: a midnight that is left out", "0 0 * * *", saoPaulo, "2018-11-03 12:00", []string{
			"2018-11-04 01:00:00 -0200", "2018-11-05 00:00:00 -0200",
		}},
		{"spring: half an hour", "15 2 * * *", lordHowe, "2026-10-03 12:00", []string{
			"2026-10-04 02:30:00 +1100", "2026-10-05 02:15:00 +1100",
		}},
		{"spring: the half that is there", "45 2 * * *", lordHowe, "2026-10-03 12:00", []string{
			"2026-10-04 02:45:00 +1100", "2026-10-05 02:45:00 +1100",
		}},
		{"a whole day that is left out", "0 9 30 * *", apia, "2011-12-01 12:00", []string{
			"2011-12-31 00:00:00 +1400", "2012-01-30 09:00:00 +1400",
		}},
		{"autumn: an hour that comes twice ticks once", "30 2 * * *", berlin, "2026-10-24 12:00", []string{
			"2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100",
		}},
		{"autumn: so do many ticks of it", "*/30 1-3 * * *", berlin, "2026-10-25 00:45", []string{
			"2026-10-25 01:00:00 +0200", "2026-10-25 01:30:00 +0200", "2026-10-25 02:00:00 +0200", "2026-10-25 02:30:00 +0200",
			"2026-10-25 03:00:00 +0100", "2026-10-25 03:30:00 +0100",
		}},
		{"autumn: every hour goes on", "30 * * * *", newYork, "2026-11-01 00:00", []string{
			"2026-11-01 00:30:00 -0400", "2026-11-01 01:30:00 -0400", "2026-11-01 01:30:00 -0500", "2026-11-01 02:30:00 -0500",
		}},
		{"autumn: every two hours are by the clock", "0 */2 * * *", berlin, "2026-10-24 23:00", []string{
			"2026-10-25 00:00:00 +0200", "2026-10-25 02:00:00 +0200", "2026-10-25 04:00:00 +0100",
		}},
		{"autumn: half an hour", "45 1 * * *", lordHowe, "2026-04-04 12:00", []string{
			"2026-04-05 01:45:00 +1100", "2026-04-06 01:45:00 +1030",
		}},
		{"seconds", "*/20 59 23 31 12 *", "UTC", "2026-01-01 00:00", []string{
			"2026-12-31 23:59:00 +0000", "2026-12-31 23:59:20 +0000", "2026-12-31 23:59:40 +0000", "2027-12-31 23:59:00 +0000",
		}},
		{"day of month or day of week", "0 0 13 * 5", "UTC", "2026-02-01 00:00", []string{
			"2026-02-06 00:00:00 +0000", "2026-02-13 00:00:00 +0000", "2026-02-20 00:00:00 +0000", "2026-02-27 00:00:00 +0000", "2026-03-06 00:00:00 +0000",
		}},
		{"a leap day", "0 0 29 2 *", "UTC", "2096-03-01 00:00", []string{"2104-02-29 00:00:00 +0000"}},
		{"the last day of a month", "0 0 L * *", "UTC", "2026-02-01 00:00", []string{"2026-02-28 00:00:00 +0000", "2026-03-31 00:00:00 +0000"}},
		{"a name", "@monthly", "UTC", "2026-02-02 00:00", []string{"2026-03-01 00:00:00 +0000"}},
		{"a zone behind the fields", "0 12 * * * Asia/Tokyo", "UTC", "2026-02-02 00:00", []string{"2026-02-02 12:00:00 +0900"}},
		{"a zone in front", "CRON_TZ=Asia/Tokyo 0 12 * * *", "UTC", "2026-02-02 00:00", []string{"2026-02-02 12:00:00 +0900"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, ticks(t, tc.cron, tc.zone, tc.from, len(tc.want)))
		})
	}
}

// The ticks are those that a search minute by minute finds, in any zone and year.
func TestNextIsWhatASearchFinds(t *testing.T) {
	t.Parallel()
	zones := []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca",
		"Pacific/Apia", "Asia/Tehran", "America/Caracas", "Europe/Dublin", "Asia/Kolkata", "Antarctica/Troll",
	}
	minutes := []string{"*", "0", "30", "*/7", "0,15,45", "59", "*/20"}
	hours := []string{"*", "0", "2", "*/2", "1-3", "0,23", "0-23", "3", "*/1"}
	days := []string{"*", "*", "1", "*/2"}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(rapid.SampledFrom(minutes).Draw(t, "minute"), " ", rapid.SampledFrom(hours).Draw(t, "hour"), " ",
			rapid.SampledFrom(days).Draw(t, "day"), " * ", rapid.SampledFrom([]string{"*", "*", "1"}).Draw(t, "weekday"))
		timing, err := ParseCron(text, zone)
		if err != nil {
			t.Fatal(err)
		}
		// Two days around a change of the clock, if the zone has any then.
		middle := time.Date(rapid.IntRange(2006, 2030).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, loc)
		if _, end := middle.ZoneBounds(); !end.IsZero() {
			middle = end
		}
		from, to := middle.Add(-26*time.Hour).UTC().Truncate(time.Minute), middle.Add(26*time.Hour)
		want := search(timing, loc, from, to)
		var got []string
		for at := timing.Next(from); !at.IsZero() && !at.After(to); at = timing.Next(at) {
			got = append(got, at.Format(layout))
			if len(got) > 5000 {
				t.Fatalf("%s in %s does not come to an end", text, zone)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s in %s around %s:\n got %v\nwant %v", text, zone, middle, got, want)
		}
		// From any instant in between, the next tick is the first one behind it.
		at := from.Add(time.Duration(rapid.IntRange(0, int(to.Sub(from)/time.Second)).Draw(t, "second")) * time.Second)
		next := timing.Next(at)
		for _, w := range want {
			if tick, _ := time.Parse(layout, w); tick.After(at) {
				if !tick.Equal(next) {
					t.Fatalf("%s in %s: after %s comes %s, not %s", text, zone, at.In(loc), w, next)
				}
				break
			}
		}
	})
}

// search tries every minute. Unless the schedule is hourly, ticks in a skipped hour move to the
// minute after it, and ticks in a repeated hour count once.
func search(timing Timing, loc *time.Location, from, to time.Time) (out []string) {
	s := timing.spec
	matches := func(wall time.Time) bool { return s.wall.Next(wall.Add(-time.Second)).Equal(wall) }
	wallOf := func(t time.Time) time.Time {
		_, offset := t.In(loc).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	// Wall clock times already seen, from long enough before from.
	shown := map[time.Time]bool{}
	var last time.Time
	for at := from.Add(-30 * time.Hour); !at.After(to); at = at.Add(time.Minute) {
		wall := wallOf(at)
		tick := matches(wall) && (s.hourly || !shown[wall])
		if !last.IsZero() && !s.hourly {
			for left := last.Add(time.Minute); left.Before(wall); left = left.Add(time.Minute) {
				tick = tick || matches(left) && !shown[left]
				shown[left] = true
			}
		}
		shown[wall] = true
		last = wall
		if tick && at.After(from) {
			out = append(out, at.In(loc).Format(layout))
		}
	}
	return out
}

func BenchmarkNext(b *testing.B) {
	timing, err := ParseCron("30 2 * * 1-5", "Europe/Berlin")
	require.NoError(b, err)
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		timing.Next(at)
	}
}
