package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
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

// Fields of a retry, its backoff and its errors, in the order of the documentation.
var (
	retryFields   = []string{"attempts", "backoff", "retry_on", "never_on", "ignore_deaths", "expire_after"}
	backoffFields = []string{"base", "max"}
	errorFields   = []string{"exceptions", "messages", "exit_codes"}
)

var retrySynonyms = map[string]string{
	"limit": "attempts", "max_attempts": "attempts", "retry_limit": "attempts", "retries": "attempts", "times": "attempts",
	"delay": "backoff", "delays": "backoff", "retry_delay": "backoff", "wait": "backoff", "base": "backoff", "max": "backoff",
	"on": "retry_on", "only_on": "retry_on", "except": "never_on", "not_on": "never_on", "no_retry_on": "never_on",
}

func (f *file) readRetry(at string, from field) *HandlerRetry {
	r := &HandlerRetry{Attempts: resqued.DefaultRetryAttempts}
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, "must be a map, if only {} for a retry with nothing special")
		return r
	}
	for _, field := range f.fields(from.value, at+".") {
		name := at + "." + field.name
		switch field.name {
		case "attempts":
			f.readNumber(name, field, &r.Attempts, 1, maxAttempts, "the first run included")
		case "backoff":
			f.readBackoff(name, field, r)
		case "retry_on":
			r.RetryOn = f.readErrors(name, field)
		case "never_on":
			r.NeverOn = f.readErrors(name, field)
		case "ignore_deaths":
			f.readBool(name, field, &r.IgnoreDeaths)
		case "expire_after":
			f.readDuration(name, field, &r.ExpireAfter, func(d time.Duration) error {
				if d%time.Second != 0 {
					return errors.New("must be whole seconds")
				}
				return nil
			})
		default:
			f.refuse(name, "", field.line, unknown(nearest(field.name, retryFields, retrySynonyms)))
		}
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
func (f *file) readBackoff(name string, from field, r *HandlerRetry) {
	switch from.value.Kind {
	case yaml.SequenceNode:
		texts, lines, ok := f.list(name, from.value)
		if ok && (len(texts) == 0 || len(texts) > maxWaits) {
			f.refuse(name, "", from.line, fmt.Sprintf("must be 1 to %d waits: [10s, 1m, 10m]", maxWaits))
			return
		}
		for i, text := range texts {
			var wait time.Duration
			if err := parseInto(&wait, text, nil); err != nil {
				f.refuse(name, text, lines[i], err.Error())
			}
			r.Backoff = append(r.Backoff, wait)
		}
	case yaml.MappingNode:
		for _, field := range f.fields(from.value, name+".") {
			at := name + "." + field.name
			switch field.name {
			case "base":
				f.readDuration(at, field, &r.Base, positive)
			case "max":
				f.readDuration(at, field, &r.Max, positive)
			default:
				f.refuse(at, "", field.line, unknown(nearest(field.name, backoffFields)))
			}
		}
	default:
		f.refuse(name, "", from.line, "must be a list of waits, [10s, 1m, 10m], or a map, {base: 10s, max: 1h}")
	}
}

func (f *file) readErrors(at string, from field) (e HandlerErrors) {
	const form = "must be a map of the errors that are meant: {exceptions: [Resqued::Timeout], messages: [refused], exit_codes: [3]}"
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, form)
		return e
	}
	for _, field := range f.fields(from.value, at+".") {
		name := at + "." + field.name
		if !slices.Contains(errorFields, field.name) {
			f.refuse(name, "", field.line, unknown(nearest(field.name, errorFields)))
			continue
		}
		if field.value.Kind != yaml.SequenceNode {
			f.refuse(name, "", field.line, "must be a list")
			continue
		}
		texts, lines, ok := f.list(name, field.value)
		if ok && len(texts) == 0 {
			f.refuse(name, "", field.line, "is empty; leave it out")
		}
		for i, text := range texts {
			if err := e.add(field.name, text); err != nil {
				f.refuse(name, text, lines[i], err.Error())
			}
		}
	}
	if len(from.value.Content) == 0 {
		f.refuse(at, "", from.line, form)
	}
	return e
}

func (e *HandlerErrors) add(kind, text string) error {
	switch kind {
	case "exceptions":
		e.Exceptions = append(e.Exceptions, text)
		if text == "" {
			return errors.New("must not be empty")
		}
		return printable(text)
	case "messages":
		e.Messages = append(e.Messages, text)
		if _, err := regexp.Compile(text); err != nil || text == "" {
			return errors.New("must be a regular expression, as Go's regexp reads them")
		}
		return nil
	default:
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
}

func (f *file) readNumber(name string, from field, to *int, low, high int, why string) {
	f.readText(name, from, new(string), func(value string) error {
		var c Config
		err := number(func(c *Config) *int { return &c.WorkerCount }, low, high, why).parse(&c, strings.TrimSpace(value))
		if err == nil {
			*to = c.WorkerCount
		}
		return err
	})
}
