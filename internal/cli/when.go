package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector/filter"
)

type whenFlags struct{ in, at string }

func (w *whenFlags) add(f *flagSet) {
	f.StringVar(&w.in, "in", "", "push it after this `time`: 90s, 5m, 2h30m, 3d")
	f.StringVar(&w.at, "at", "", "push it at this `time`: 2026-01-02T15:04:05Z, '2026-01-02 15:04' or 15:04 (local)")
}

// parse returns both, at most one of which is set.
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

// timeSpan is a flag in parseSpan's format.
type timeSpan time.Duration

func (t *timeSpan) String() string {
	if *t == 0 {
		return ""
	}
	return config.FormatDuration(time.Duration(*t))
}

// Type names the kind of value in messages of pflag.
func (t *timeSpan) Type() string { return "time" }

// Set reads a span. pflag's message adds the flag and the text.
func (t *timeSpan) Set(text string) error {
	d, err := parseSpan(text)
	*t = timeSpan(d)
	return err
}

// span declares a flag in parseSpan's format.
func (f *flagSet) span(to *time.Duration, name string, def time.Duration, help string) {
	*to = def
	f.Var((*timeSpan)(to), name, help)
}

func parseIn(text string) (time.Duration, error) {
	d, err := parseSpan(text)
	if err != nil {
		return 0, usage("", "%q is not a duration: %s", text, err)
	}
	return d, nil
}

var errNoUnit = errors.New("write numbers with units, such as 90s, 5m, 2h30m or 3d")

// parseSpan reads a time span. It requires a unit: a user may expect a bare number to be minutes.
func parseSpan(text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err == nil && d != 0 && strings.Trim(text[len(text)-1:], "0123456789.") == "" {
		return 0, errNoUnit
	}
	if errors.Is(err, config.ErrNoDuration) {
		err = errNoUnit // its own text has examples without a unit
	}
	return d, err
}

// parseAt reads a time. Without a zone it is local; without a day it is the next such time.
func parseAt(text string, now time.Time) (time.Time, error) {
	if at, ok := filter.Clock(text, now, true); ok {
		return at, nil
	}
	return time.Time{}, usage("Examples: 2026-01-02T15:04:05Z, '2026-01-02 15:04', 15:04", "%q is not a time", text)
}
