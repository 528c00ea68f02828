package cli

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// whenFlags are --in and --at.
type whenFlags struct{ in, at string }

func (w *whenFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&w.in, "in", "", "push it after this `time`: 90s, 5m, 2h30m, 3d")
	c.Flags().StringVar(&w.at, "at", "", "push it at this `time`: 2026-01-02T15:04:05Z, '2026-01-02 15:04' or 15:04 (local)")
	for _, flag := range []string{"in", "at"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// parse returns both, of which one at most is set.
func (w *whenFlags) parse(now time.Time) (in time.Duration, at time.Time, err error) {
	switch {
	case w.in != "" && w.at != "":
		return 0, at, usage("", "use --in or --at, not both")
	case w.in != "":
		in, err = parseIn(w.in)
	case w.at != "":
		at, err = parseAt(w.at, now)
	}
	return in, at, err
}

// timeSpan is a flag that takes what parseIn reads.
type timeSpan time.Duration

// String returns the span as Go writes it, "" for none.
func (t *timeSpan) String() string {
	if *t == 0 {
		return ""
	}
	return time.Duration(*t).String()
}

// Type names the kind of value in messages of pflag.
func (t *timeSpan) Type() string { return "time" }

// Set reads a span.
func (t *timeSpan) Set(text string) error {
	d, err := parseIn(text)
	*t = timeSpan(d)
	return err
}

// parseIn reads how long to wait.
func parseIn(text string) (time.Duration, error) {
	days := time.Duration(0)
	rest := text
	if whole, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(whole, 10, 16)
		if err != nil {
			return 0, usage("Examples: 90s, 5m, 2h30m, 3d", "%q is no duration", text)
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest == "" && days > 0 {
		return days, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, usage("Examples: 90s, 5m, 2h30m, 3d", "%q is no duration", text)
	}
	if d > math.MaxInt64-days {
		return 0, usage("A duration is at most 292 years", "%q is too long", text)
	}
	return days + d, nil
}

// parseAt reads a time. One without a zone is local; one without a day is the next of
// that time.
func parseAt(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		y, m, d := now.Date()
		at := time.Date(y, m, d, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		if at.Before(now) {
			at = time.Date(y, m, d+1, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		}
		return at, nil
	}
	return time.Time{}, usage("Examples: 2026-01-02T15:04:05Z, '2026-01-02 15:04', 15:04", "%q is no time", text)
}
