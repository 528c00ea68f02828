package wire

import (
	"strconv"
	"strings"
	"time"
)

const (
	layoutStart  = "2006-01-02 15:04:05 -0700"
	layoutFail   = "2006/01/02 15:04:05 MST"
	layoutBare   = "2006/01/02 15:04:05"
	layoutISO    = "2006-01-02T15:04:05-07:00"
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

// FormatFail writes a time as failure records hold it, in t's own zone:
// 2026/11/20 09:56:21 EST.
func FormatFail(t time.Time) string { return t.Format(layoutFail) }

// FormatISO writes a time as heartbeats hold it, in t's own zone, which is
// +00:00 for UTC, not Z: 2026-11-20T09:56:21-05:00.
func FormatISO(t time.Time) string { return t.Format(layoutISO) }

// FormatISOUTC writes a time as run_at of a running job holds it, in UTC:
// 2026-11-20T14:56:21Z.
func FormatISOUTC(t time.Time) string { return t.UTC().Format(layoutISOUTC) }

// zones are the offsets (in minutes) of abbreviations that Ruby knows too. Go
// takes an abbreviation that is not of the local zone for UTC.
var zones = map[string]int{
	"UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120,
	"EET": 120, "EEST": 180, "MSK": 180, "IST": 330, "JST": 540, "AEST": 600,
	"AEDT": 660, "NZST": 720, "NZDT": 780, "AST": -240, "ADT": -180, "EST": -300,
	"EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480,
	"PDT": -420, "AKST": -540, "AKDT": -480, "HST": -600,
}

// parseTime reads any of the formats that failure records of Ruby's Resque, the
// Files.com fork and node-resque hold; zero if it is none of them.
func parseTime(text string) time.Time {
	if t, err := time.ParseInLocation(layoutFail, text, time.Local); err == nil {
		return fixZone(t)
	}
	if text, _, _ := strings.Cut(text, " ("); strings.Contains(text, " GMT") {
		if t, err := time.Parse(layoutScript, text); err == nil {
			return t
		}
	}
	for _, layout := range []string{layoutBare, layoutBare + " -0700", time.RFC3339Nano, layoutStart} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t
		}
	}
	return time.Time{}
}

// fixZone gives a time whose abbreviation is not of the local zone its offset.
func fixZone(t time.Time) time.Time {
	name, offset := t.Zone()
	minutes := zones[name]
	if hours, err := strconv.Atoi(name); err == nil {
		minutes = 60 * hours // a zone without an abbreviation: +05
	}
	if offset != 0 || minutes == 0 {
		return t
	}
	y, mo, d := t.Date()
	h, mi, s := t.Clock()
	return time.Date(y, mo, d, h, mi, s, 0, time.FixedZone(name, 60*minutes))
}
