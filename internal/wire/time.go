package wire

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	layoutStart  = "2006-01-02 15:04:05 -0700"
	layoutFail   = "2006/01/02 15:04:05 MST"
	layoutBare   = "2006/01/02 15:04:05"
	layoutISOUTC = "2006-01-02T15:04:05Z"
	// layoutScript is what a JavaScript date prints, up to its zone's name.
	layoutScript = "Mon Jan 02 2006 15:04:05 GMT-0700"
)

// FormatStart writes a time as worker:<id>:started holds it, in t's own zone:
// 2026-11-20 09:56:21 -0500.
func FormatStart(t time.Time) string { return t.Format(layoutStart) }

// ParseStart reads what FormatStart writes; zero if it is something else.
func ParseStart(text string) time.Time {
	t, err := time.Parse(layoutStart, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// FormatFail writes a time as failure records hold it: 2026/11/20 14:56:21 UTC. The zone is
// always UTC, because the abbreviations of other zones mean different things to different
// readers.
func FormatFail(t time.Time) string { return t.UTC().Format(layoutFail) }

// FormatISOUTC writes a time as run_at of a running job holds it, in UTC:
// 2026-11-20T14:56:21Z.
func FormatISOUTC(t time.Time) string { return t.UTC().Format(layoutISOUTC) }

// zones are the offsets, in minutes, of abbreviations. Those that several zones use today have
// several.
var zones = map[string][]int{
	"UTC": {0}, "GMT": {0}, "Z": {0}, "WET": {0}, "WEST": {60}, "BST": {60}, "CET": {60}, "CEST": {120}, "EET": {120}, "EEST": {180}, "MSK": {180},
	"WAT": {60}, "CAT": {120}, "SAST": {120}, "EAT": {180}, "IDT": {180}, "PKT": {300}, "WIB": {420}, "WITA": {480}, "WIT": {540},
	"HKT": {480}, "KST": {540}, "JST": {540}, "AWST": {480}, "ACST": {570}, "ACDT": {630}, "AEST": {600}, "AEDT": {660},
	"ChST": {600}, "NZST": {720}, "NZDT": {780}, "SST": {-660}, "HST": {-600}, "HDT": {-540}, "AKST": {-540}, "AKDT": {-480},
	"PDT": {-420}, "MST": {-420}, "MDT": {-360}, "EST": {-300}, "EDT": {-240}, "AST": {-240}, "ADT": {-180}, "NST": {-210}, "NDT": {-150},
	"IST": {60, 120, 330}, "CST": {-360, -300, 480}, "CDT": {-300, -240}, "PST": {-480, 480},
}

// anyZone are the outermost offsets of all zones, in minutes.
var anyZone = []int{-12 * 60, 14 * 60}

// layoutsFail are the forms of a failure's time, without the zone: Ruby's Resque, Ruby's and
// Java's text of a time, and php-resque.
var layoutsFail = []string{layoutBare, "2006-01-02 15:04:05", "Mon Jan 2 15:04:05 2006"}

// moment is when a failure record says that its job failed. at is zero if that is not known;
// earliest and latest are set if the zone is not certain.
type moment struct{ at, earliest, latest time.Time }

// parseTime reads a time as failure records of Resque in Ruby, PHP, JavaScript and Java, and of
// the Files.com fork, hold it: a JSON text, or a number of seconds or milliseconds since 1970.
// A time without a zone is of loc, which also decides what its own abbreviations mean, as in
// Ruby.
func parseTime(raw []byte, loc *time.Location) moment {
	text := textOf(raw)
	if text == "" {
		text = string(raw)
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if n < 1e11 { // as milliseconds it would be before 1974
			n *= 1000
		}
		if math.IsNaN(n) || n < 1e12 || n >= 1e14 { // before Resque, or far ahead
			return moment{}
		}
		return moment{at: time.UnixMilli(int64(n))}
	}
	if text, _, _ := strings.Cut(text, " ("); strings.Contains(text, " GMT") {
		if t, err := time.Parse(layoutScript, text); err == nil {
			return moment{at: t}
		}
	}
	for _, layout := range []string{layoutBare, time.RFC3339Nano} {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return moment{at: t}
		}
	}
	fields := strings.Fields(text)
	at := len(fields) - 1
	if len(fields) == 6 { // the year is behind the zone
		at--
	}
	if at < 2 {
		return moment{}
	}
	zone := fields[at]
	rest := strings.Join(slices.Delete(fields, at, at+1), " ")
	for _, layout := range layoutsFail {
		if wall, err := time.Parse(layout, rest); err == nil {
			return inZone(wall, zone, loc)
		}
	}
	return moment{}
}

// inZone returns what a wall clock's time means in the zone with an abbreviation.
func inZone(wall time.Time, zone string, loc *time.Location) moment {
	for _, layout := range []string{"-07", "-0700", "-07:00"} {
		if t, err := time.Parse(layout, zone); err == nil {
			_, offset := t.Zone()
			return moment{at: wall.Add(-time.Duration(offset) * time.Second)}
		}
	}
	if t, err := time.ParseInLocation(layoutFail, wall.Format(layoutBare)+" "+zone, loc); err == nil {
		if name, _ := t.In(loc).Zone(); name == zone {
			return moment{at: t}
		}
	}
	offsets := zones[zone]
	if len(offsets) == 0 {
		offsets = anyZone
	}
	in := func(offset int) time.Time { return wall.Add(-time.Duration(offset) * time.Minute) }
	if len(offsets) == 1 {
		return moment{at: in(offsets[0])}
	}
	return moment{earliest: in(slices.Max(offsets)), latest: in(slices.Min(offsets))}
}
