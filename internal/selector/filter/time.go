package filter

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

var errTime = errors.New("write an age (2h, 3d), a time of day (10:00), yesterday, 2026-01-02 15:04 or 2026-01-02T15:04:05Z")

// parse reads a time: an age, which counts forward for times to come and after "+", or as Clock does.
func (m moment) parse(text string) (time.Time, error) {
	sign := time.Duration(-1)
	rest, plus := strings.CutPrefix(text, "+")
	rest, minus := strings.CutPrefix(rest, "-")
	if plus || m.ahead && !minus {
		sign = 1
	}
	if age, ok := Span(rest); ok && (!plus || !minus) {
		return m.now.Add(sign * age), nil
	}
	if at, ok := Clock(text, m.now, m.ahead); ok && !at.IsZero() { // zero means no limit
		return at, nil
	}
	return time.Time{}, errTime
}

// Time reads a time as the conditions since and until do, for things that are past.
func Time(text string, now time.Time) (time.Time, error) { return moment{now: now}.parse(text) }

// Span reads a duration with units from days (d) to milliseconds.
func Span(text string) (sum time.Duration, ok bool) {
	for text != "" {
		n := strings.IndexFunc(text, func(r rune) bool { return r >= 'a' && r <= 'z' })
		if n <= 0 {
			return 0, false
		}
		end := n + strings.IndexFunc(text[n:]+"0", func(r rune) bool { return r < 'a' || r > 'z' })
		part, days := text[:end], 1.0
		switch text[n:end] {
		case "d":
			part, days = text[:n]+"h", 24
		case "w":
			part, days = text[:n]+"h", 7*24
		}
		d, err := time.ParseDuration(part)
		if scaled := float64(d) * days; err == nil && float64(sum)+scaled < 1<<62 && d >= 0 {
			sum += time.Duration(scaled)
		} else {
			return 0, false
		}
		text = text[end:]
	}
	return sum, sum > 0
}

// Clock reads a time: RFC 3339, seconds since 1970, or, in the zone of now, a date with or without a time,
// yesterday, today, tomorrow, or a time of day, which is the last one or, if ahead, the next.
func Clock(text string, now time.Time, ahead bool) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, true
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && len(text) == len("1764288000") {
		return time.Unix(seconds, 0), true
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, true
		}
	}
	y, m, d := now.Date()
	if day, ok := map[string]int{"yesterday": -1, "today": 0, "tomorrow": 1}[text]; ok {
		return time.Date(y, m, d+day, 0, 0, 0, 0, now.Location()), true
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		on := func(day int) time.Time {
			return time.Date(y, m, day, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		}
		switch at := on(d); {
		case ahead && at.Before(now):
			return on(d + 1), true
		case !ahead && at.After(now):
			return on(d - 1), true
		default:
			return at, true
		}
	}
	return time.Time{}, false
}
