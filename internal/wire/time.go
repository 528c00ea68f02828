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
	// layoutScript is a JavaScript date up to the zone's name.
	layoutScript = "Mon Jan 02 2006 15:04:05 GMT-0700"
)

// FormatStart formats a time for worker:<id>:started, in t's own zone:
// 2026-11-20 09:56:21 -0500.
func FormatStart(t time.Time) string { return t.Format(layoutStart) }

// ParseStart reads the format of FormatStart; zero for other text.
func ParseStart(text string) time.Time {
	t, err := time.Parse(layoutStart, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// FormatFail formats a time for failure records: 2026/11/20 14:56:21 UTC. It is always UTC, because
// readers differ about the abbreviations of other zones.
func FormatFail(t time.Time) string { return t.UTC().Format(layoutFail) }

// FormatISOUTC formats a time for the run_at of a running job, in UTC:
// 2026-11-20T14:56:21Z.
func FormatISOUTC(t time.Time) string { return t.UTC().Format(layoutISOUTC) }

// zones are the offsets of zone abbreviations in minutes; ambiguous ones have several.
var zones = map[string][]int{
	"UTC": {0}, "GMT": {0}, "Z": {0}, "WET": {0}, "WEST": {60}, "BST": {60}, "CET": {60}, "CEST": {120}, "EET": {120}, "EEST": {180}, "MSK": {180},
	"WAT": {60}, "CAT": {120}, "SAST": {120}, "EAT": {180}, "IDT": {180}, "PKT": {300}, "WIB": {420}, "WITA": {480}, "WIT": {540},
	"HKT": {480}, "KST": {540}, "JST": {540}, "AWST": {480}, "ACST": {570}, "ACDT": {630}, "AEST": {600}, "AEDT": {660},
	"ChST": {600}, "NZST": {720}, "NZDT": {780}, "SST": {-660}, "HST": {-600}, "HDT": {-540}, "AKST": {-540}, "AKDT": {-480},
	"PDT": {-420}, "MST": {-420}, "MDT": {-360}, "EST": {-300}, "EDT": {-240}, "AST": {-240}, "ADT": {-180}, "NST": {-210}, "NDT": {-150},
	"IST": {60, 120, 330}, "CST": {-360, -300, 480}, "CDT": {-300, -240}, "PST": {-480, 480},
}

var anyZone = []int{-12 * 60, 14 * 60}

// layoutsFail are formats of a failure's time, without the zone: Ruby's Resque, the default texts of
// Ruby and Java, and php-resque.
var layoutsFail = []string{layoutBare, "2006-01-02 15:04:05", "Mon Jan 2 15:04:05 2006"}

// moment is the failure time in a record. at is zero if unknown; earliest and latest are set if the
// zone is ambiguous.
type moment struct{ at, earliest, latest time.Time }

// parseTime reads the failure time in records of Resque in Ruby, PHP, JavaScript and Java, and of the
// Files.com fork: a JSON text, or seconds or milliseconds since 1970. A time without a zone is in
// loc, whose own abbreviations also win, as in Ruby.
func parseTime(raw []byte, loc *time.Location) moment {
	text := textOf(raw)
	if text == "" {
		text = string(raw)
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if n < 1e11 { // as milliseconds it would be before 1974
			n *= 1000
		}
		if math.IsNaN(n) || n < 1e12 || n >= 1e14 { // before Resque existed, or far in the future
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
