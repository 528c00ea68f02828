package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued"
)

const (
	maxAttempts = 1_000_000
	maxWaits    = 1000
)

// HandlerRetry is when failed jobs of a command handler run again.
type HandlerRetry struct {
	// Attempts is the maximum number of runs, including the first.
	Attempts int `json:"attempts"`
	// Backoff are the waits before further runs; the last repeats. None = random by Base and Max.
	Backoff []time.Duration `json:"backoff,omitempty"`
	// Base is the longest wait before the second run; it doubles with each run, up to Max.
	Base time.Duration `json:"base,omitempty"`
	Max  time.Duration `json:"max,omitempty"`
	// RetryOn are the errors that are retried, none = all; NeverOn those that never are.
	RetryOn HandlerErrors `json:"retry_on,omitzero"`
	NeverOn HandlerErrors `json:"never_on,omitzero"`
	// IgnoreDeaths: runs that end with the worker process's death don't count.
	IgnoreDeaths bool `json:"ignore_deaths,omitempty"`
	// ExpireAfter is how long after a wait the attempt count is forgotten; 0 = never.
	ExpireAfter time.Duration `json:"expire_after,omitempty"`
}

// HandlerErrors selects errors that meet any of the conditions.
type HandlerErrors struct {
	// Exceptions are names; * matches any text.
	Exceptions []string `json:"exceptions,omitempty"`
	// Messages are regular expressions.
	Messages  []string `json:"messages,omitempty"`
	ExitCodes []int    `json:"exit_codes,omitempty"`
}

var retrySynonyms = map[string]string{
	"limit": "attempts", "max_attempts": "attempts", "retry_limit": "attempts", "retries": "attempts", "times": "attempts",
	"delay": "backoff", "delays": "backoff", "retry_delay": "backoff", "wait": "backoff", "base": "backoff", "max": "backoff",
	"on": "retry_on", "only_on": "retry_on", "except": "never_on", "not_on": "never_on", "no_retry_on": "never_on",
}

// fields are in the order of the documentation.
func (r *HandlerRetry) fields() rules {
	return rules{
		{"attempts", number(&r.Attempts, 1, maxAttempts, "the first run included").read},
		{"backoff", r.readBackoff},
		{"retry_on", into(&r.RetryOn, (*file).readErrors)},
		{"never_on", into(&r.NeverOn, (*file).readErrors)},
		{"ignore_deaths", boolean(&r.IgnoreDeaths).read},
		{"expire_after", duration(&r.ExpireAfter, func(d time.Duration) error {
			if d%time.Second != 0 {
				return errors.New("must be whole seconds")
			}
			return nil
		}).read},
	}
}

func (f *file) readRetry(at string, from field) *HandlerRetry {
	r := &HandlerRetry{Attempts: resqued.DefaultRetryAttempts}
	if _, ok := f.readMap(at, from, "must be a map, if only {} for a retry with nothing special", r.fields(), retrySynonyms); !ok {
		return r
	}
	if len(r.Backoff) == 0 {
		if r.Base == 0 {
			r.Base = resqued.DefaultRetryBase
			if r.Max > 0 {
				r.Base = min(r.Base, r.Max)
			}
		}
		if r.Max == 0 {
			r.Max = max(resqued.DefaultRetryMax, r.Base)
		}
		if r.Max < r.Base {
			f.refuse(at+".backoff.max", FormatDuration(r.Max), from.line, "is less than base, "+FormatDuration(r.Base))
		}
	}
	return r
}

// readBackoff reads a list of waits, or a map of base and max.
func (r *HandlerRetry) readBackoff(f *file, name string, from field) {
	if from.value.Kind != yaml.SequenceNode {
		f.readMap(name, from, "must be a list of waits, [10s, 1m, 10m], or a map, {base: 10s, max: 1h}", rules{
			{"base", duration(&r.Base, positive).read},
			{"max", duration(&r.Max, positive).read},
		})
		return
	}
	texts, lines, ok := f.list(name, from.value)
	if ok && (len(texts) == 0 || len(texts) > maxWaits) {
		f.refuse(name, "", from.line, fmt.Sprintf("must be 1 to %d waits: [10s, 1m, 10m]", maxWaits))
		return
	}
	for i, text := range texts {
		var wait time.Duration
		if err := duration(&wait, nil).parse(strings.TrimSpace(text)); err != nil {
			f.refuse(name, text, lines[i], err.Error())
		}
		r.Backoff = append(r.Backoff, wait)
	}
}

func (f *file) readErrors(at string, from field) (e HandlerErrors) {
	const form = "must be a map of the errors that are meant: {exceptions: [Resqued::Timeout], messages: [refused], exit_codes: [3]}"
	each := func(add func(text string) error) reader {
		return func(f *file, name string, from field) {
			f.readList(name, from, "must be a list", "is empty; leave it out", add)
		}
	}
	_, ok := f.readMap(at, from, form, rules{
		{"exceptions", each(e.addException)},
		{"messages", each(e.addMessage)},
		{"exit_codes", each(e.addExitCode)},
	})
	if ok && len(from.value.Content) == 0 {
		f.refuse(at, "", from.line, form)
	}
	return e
}

func (e *HandlerErrors) addException(name string) error {
	e.Exceptions = append(e.Exceptions, name)
	if name == "" {
		return errors.New("must not be empty")
	}
	return printable(name)
}

func (e *HandlerErrors) addMessage(text string) error {
	e.Messages = append(e.Messages, text)
	if _, err := regexp.Compile(text); err != nil || text == "" {
		return errors.New("must be a regular expression, as Go's regexp reads them")
	}
	return nil
}

func (e *HandlerErrors) addExitCode(text string) error {
	code, err := strconv.Atoi(text)
	e.ExitCodes = append(e.ExitCodes, code)
	switch {
	case err != nil || code < 1 || code > 255:
		return errors.New("must be an exit code, 1 to 255")
	case code == 75 || code == 100:
		return errors.New("is not a failure: a command exits with 75 to run again, and with 100 to be discarded")
	}
	return nil
}
