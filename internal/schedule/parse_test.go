package schedule

import (
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseCronRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "is empty",
		"TZ=UTC":                 "is empty",
		"0 2 * *":                "has 4 fields; it takes five",
		"0 2":                    "has 2 fields",
		"nightly":                "has 1 field;",
		"0 0 2 * * * *":          "has 7 fields",
		"60 2 * * *":             `the minute is "60": write 0 to 59, a list (1,2), a range (1-5), steps (*/5) or *`,
		"99 0 2 * * *":           `the second is "99": write 0 to 59`,
		"0 25 * * *":             `the hour is "25": write 0 to 23`,
		"0 */0 * * *":            `the hour is "*/0": write 0 to 23`,
		"0 2 32 * * UTC":         `the day is "32": write 1 to 31`,
		"0 2 1 JANUARY *":        `the month is "JANUARY": write 1 to 12, or JAN to DEC`,
		"0 2 * * x":              `the weekday is "x": write 0 to 7, or SUN to SAT`,
		"0 2 30 2 *":             "never comes",
		"@nightly":               `"@nightly" is not known; write @hourly, @daily`,
		"@reboot":                "@reboot",
		"0 2 * * * Europe/Berli": `no time zone "Europe/Berli"`,
		"TZ=Local 0 2 * * *":     `no time zone "Local"`,
		"@every 0s":              "whole seconds",
		"@every":                 "not an interval",
		"a b c d e":              "a",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := ParseCron(text, "")
			require.ErrorContains(t, err, want)
		})
	}
}

func TestParseEvery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1w": 168 * time.Hour,
		"15 minutes": 15 * time.Minute, "every 1 hour": time.Hour, "15mins": 15 * time.Minute, "1.5h": 90 * time.Minute, "1d 12h": 36 * time.Hour,
	} {
		timing, err := ParseEvery(text, "")
		require.NoError(t, err, text)
		require.Equal(t, want, timing.Period(), text)
		at := time.Unix(1000, 0)
		require.Equal(t, at.Add(want), timing.Next(at))
		require.Equal(t, at, timing.Begin(at))
	}
	for text, want := range map[string]string{
		"": "not an interval", "-5m": "not an interval", "5x": "not an interval", "0": "one at least", "500ms": "not an interval", "1.5s": "whole seconds",
		"2y": "not an interval", "400d": "longer than a year", "300d300d": "longer than a year", "1h 1 fortnight": "not an interval", "1e99": "not an interval",
	} {
		_, err := ParseEvery(text, "")
		require.ErrorContains(t, err, want, text)
	}
	timing, err := ParseEvery("1h", "5m")
	require.NoError(t, err)
	at := time.Unix(1000, 0)
	require.Equal(t, at.Add(5*time.Minute), timing.Next(timing.Begin(at)), "first_in")
	_, err = ParseEvery("1h", "soon")
	require.ErrorContains(t, err, "first_in")
}

// Equal timings have equal fingerprints, however they are written.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	print := func(text, zone string) string {
		timing, err := ParseCron(text, zone)
		require.NoError(t, err)
		return timing.Fingerprint()
	}
	require.Equal(t, print("0 2 * * *", "Europe/Berlin"), print("0  2 * * * Europe/Berlin", ""))
	require.Equal(t, print("0 2 * * *", "Europe/Berlin"), print("0 2 * * *", "Europe/Stockholm"), "the same rules for twenty years")
	require.NotEqual(t, print("0 2 * * *", "Europe/Berlin"), print("0 2 * * *", "UTC"))
	require.NotEqual(t, print("0 2 * * *", "UTC"), print("0 3 * * *", "UTC"))
	require.NotEqual(t, print("@every 1h", ""), print("@every 2h", ""))
	for _, zulu := range []string{print("0 2 * * * Z", ""), print("TZ=Z 0 2 * * *", ""), print("0 2 * * *", "Z")} {
		require.Equal(t, print("0 2 * * *", "UTC"), zulu)
	}
}

// zone makes a time zone that is an hour ahead of UTC, and two from some instants on until
// others.
func zone(t *testing.T, changes ...time.Time) *time.Location {
	t.Helper()
	b := append([]byte("TZif"), make([]byte, 16)...)
	for _, n := range []int{0, 0, 0, len(changes), 2, 8} { // transitions, types, letters
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for _, at := range changes {
		b = binary.BigEndian.AppendUint32(b, uint32(at.Unix()))
	}
	for i := range changes {
		b = append(b, byte((i+1)%2))
	}
	b = append(b, 0, 0, 0x0e, 0x10, 0, 0, 0, 0, 0x1c, 0x20, 1, 4)
	loc, err := time.LoadLocationFromTZData("Test/Zone", append(b, "CET\x00CST\x00"...))
	require.NoError(t, err)
	return loc
}

// Databases of zones that differ by some days have different rules, and so have they if all
// that differs is the hour; the names of the times make no difference.
func TestRules(t *testing.T) {
	t.Parallel()
	day := func(month time.Month, day, hour int) time.Time {
		return time.Date(2026, month, day, hour, 0, 0, 0, time.UTC)
	}
	last := zone(t, day(3, 29, 1), day(10, 25, 1))
	require.Equal(t, rules(last), rules(zone(t, day(3, 29, 1), day(10, 25, 1))))
	require.NotEqual(t, rules(last), rules(zone(t, day(3, 22, 1), day(10, 25, 1))), "a week earlier")
	require.NotEqual(t, rules(last), rules(zone(t, day(3, 29, 2), day(10, 25, 1))), "an hour later")
	require.NotEqual(t, rules(last), rules(zone(t, day(3, 29, 1))))
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	good := Definition{Name: "n", Class: "C", Queue: "q", Cron: "0 2 * * *", TimeZone: "Asia/Tokyo"}
	require.NoError(t, good.Check())
	require.Equal(t, "0 2 * * * Asia/Tokyo", good.When())
	_, err := good.Timing()
	require.NoError(t, err)
	for want, change := range map[string]func(s *Definition){
		"has both cron and every":         func(s *Definition) { s.Every = "1h" },
		"says nothing of when":            func(s *Definition) { s.Cron = "" },
		"timezone belongs to cron":        func(s *Definition) { s.Cron, s.Every = "", "1h" },
		"first_in belongs to every":       func(s *Definition) { s.FirstIn = "1h" },
		"has no class":                    func(s *Definition) { s.Class = "" },
		"has no queue, and class C names": func(s *Definition) { s.Queue = "" },
		"must be plain text":              func(s *Definition) { s.Queue = "a\nb" },
		`if_running "x" is not known`:     func(s *Definition) { s.IfRunning = "x" },
		`catch_up "x" is not known`:       func(s *Definition) { s.CatchUp = "x" },
	} {
		s := good
		change(&s)
		_, timing := s.Timing()
		if err := s.Check(); err != nil {
			timing = err
		}
		require.ErrorContains(t, timing, want)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`[1, "a b", {"x": 1e400}]`: `[1,"a b",{"x":1e400}]`, `"one"`: `["one"]`, `{"a":1}`: `[{"a":1}]`, `null`: `[]`, `7`: `[7]`, `"<é&>"`: `["<é&>"]`,
	} {
		got, err := Arguments(json.RawMessage(value))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := Arguments(json.RawMessage(`[1,`))
	require.Error(t, err)
}

// Schedules as resque-scheduler writes them.
func TestStored(t *testing.T) {
	t.Parallel()
	defaults := Defaults{RailsEnv: "production", Queue: func(class string) string { return map[string]string{"Tea": "kitchen"}[class] }}
	for _, tc := range []struct {
		name, config string
		want         Definition
	}{
		{"nightly", `{"class":"Report","cron":"0 2 * * * Europe/Berlin","args":{"a":1},"queue":"reports","description":"x"}`, Definition{
			Class: "Report", Queue: "reports", Cron: "0 2 * * * Europe/Berlin", Args: json.RawMessage(`[{"a":1}]`), Description: "x",
		}},
		{"Tea", `{"every":["1h",{"first_in":"5m","overlap":false}],"args":["green", 2]}`, Definition{
			Class: "Tea", Queue: "kitchen", Every: "1h", FirstIn: "5m", Args: json.RawMessage(`["green",2]`),
		}},
		{"both", `{"class":"Tea","cron":["@daily",{"allow_overlapping":true}],"every":"1h","rails_env":"staging, production"}`, Definition{
			Class: "Tea", Queue: "kitchen", Cron: "@daily", Args: json.RawMessage(`[]`),
		}},
	} {
		s, err := ParseStored(tc.name, tc.config, defaults)
		require.NoError(t, err)
		tc.want.Name, tc.want.Stored = tc.name, tc.config
		require.Equal(t, tc.want, s)
	}
	for config, want := range map[string]string{
		`no json`:                                   "cannot be read",
		`[]`:                                        "cannot be read",
		`{"class":"X","cron":"0 2 * * *"}`:          "has no queue",
		`{"class":"Tea"}`:                           "says nothing of when",
		`{"class":"Tea","cron":"0 2 * *"}`:          "has 4 fields",
		`{"class":"Tea","every":{"a":1}}`:           "neither a text",
		`{"class":"Tea","every":["1h",2]}`:          "must be an object",
		`{"class":"Tea","every":["1h",{},{}]}`:      "neither a text",
		`{"every":"1h","custom_job_class":"Other"}`: "known to Ruby only",
	} {
		_, err := ParseStored("n", config, defaults)
		require.ErrorContains(t, err, want, config)
	}
	_, err := ParseStored("n", `{"class":"Tea","every":"1h","rails_env":"test"}`, defaults)
	require.ErrorIs(t, err, ErrElsewhere)
}
