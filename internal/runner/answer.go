package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxAnswer bounds a line from a runner, in bytes.
const maxAnswer = 8 << 20

type kind byte

const (
	kindUnknown kind = iota
	kindHello
	kindDone
	kindFailed
	kindRequeue
	kindLimitHit
	kindDiscard
	kindProgress
	kindRefresh
	kindLog
	kindReport
	kindError
)

func (k kind) ends() bool {
	return k == kindDone || k == kindFailed || k == kindRequeue || k == kindLimitHit || k == kindDiscard
}

// answer is a line from a runner.
type answer struct {
	kind kind
	// job is the number of its job; 0 = none.
	job int64
	// For failed.
	exception, message string
	backtrace          []string
	// For done.
	interrupted bool
	// For requeue and limit_hit.
	after time.Duration
	// text is the text of discard, log or error, the limit of limit_hit, or the unknown kind's name; level belongs to
	// log.
	text, level string
	// For progress.
	done, total json.Number
	// line is a report's line.
	line  json.RawMessage
	hello hello
}

// hello is a runner's description of itself.
type hello struct {
	Protocol    int      `json:"protocol"`
	Concurrency int      `json:"concurrency"`
	Language    string   `json:"language"`
	App         string   `json:"app"`
	Classes     []string `json:"classes"`
	Template    bool     `json:"template"`
	// FailureHooks: it understands the line about a job whose process has died.
	FailureHooks bool `json:"failure_hooks"`
	// Leaving: it understands the line about a job that should make room.
	Leaving bool `json:"leaving"`
}

var (
	errTooLong  = fmt.Errorf("is longer than %d bytes", maxAnswer)
	errNoObject = errors.New("is not a JSON object in UTF-8")
	errNumber   = errors.New("names no job: the number must be a whole one from 1 on")
)

// parse parses a line without its line break.
func parse(line []byte) (answer, error) {
	if n, ok := parseDone(line); ok {
		return answer{kind: kindDone, job: n}, nil
	}
	var keys map[string]json.RawMessage
	if !utf8.Valid(line) || json.Unmarshal(line, &keys) != nil || keys == nil {
		return answer{}, errNoObject
	}
	a := answer{}
	var said []string
	for name, read := range readers {
		value, ok := keys[name]
		if !ok {
			continue
		}
		if said = append(said, name); len(said) > 1 {
			slices.Sort(said)
			return answer{}, fmt.Errorf("says both %s and %s", said[0], said[1])
		}
		if err := read(&a, value, keys); err != nil {
			return answer{}, fmt.Errorf("%q: %w", name, err)
		}
	}
	if len(said) == 0 {
		for name := range keys {
			a.text = max(a.text, name)
		}
	}
	return a, nil
}

// parseDone parses {"done":17}, by far the most frequent line.
func parseDone(line []byte) (number int64, ok bool) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"done":`))
	if !ok {
		return 0, false
	}
	digits, ok = bytes.CutSuffix(digits, []byte("}"))
	if !ok || len(digits) == 0 || len(digits) > 18 || digits[0] == '0' {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		number = 10*number + int64(c-'0')
	}
	return number, true
}

// reader reads the value of the key that names the line's kind; keys has all keys of the line.
type reader func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error

var readers = map[string]reader{
	"hello": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind = kindHello
		return object(value, &a.hello)
	},
	"done": func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error {
		a.kind = kindDone
		a.interrupted = string(keys["interrupted"]) == "true"
		return a.number(value)
	},
	"failed": func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error {
		a.kind = kindFailed
		if err := a.number(value); err != nil {
			return err
		}
		// Bad values here only cost the text: the job has ended.
		a.exception, a.message = text(keys["exception"]), text(keys["message"])
		var lines []json.RawMessage
		_ = json.Unmarshal(keys["backtrace"], &lines)
		for _, line := range lines[:min(len(lines), maxFrames)] {
			a.backtrace = append(a.backtrace, text(line))
		}
		return nil
	},
	"requeue": func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error {
		a.kind = kindRequeue
		return a.later(value, keys)
	},
	"limit_hit": func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error {
		a.kind, a.text = kindLimitHit, text(keys["limit"])
		return a.later(value, keys)
	},
	"discard": func(a *answer, value json.RawMessage, keys map[string]json.RawMessage) error {
		a.kind, a.text = kindDiscard, text(keys["why"])
		return a.number(value)
	},
	"refresh_lock": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind = kindRefresh
		return a.number(value)
	},
	"progress": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind = kindProgress
		var keys map[string]json.RawMessage
		if err := object(value, &keys); err != nil {
			return err
		}
		a.done, a.total = numeral(keys["done"]), numeral(keys["total"])
		return a.number(keys["job"])
	},
	"log": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind = kindLog
		var keys map[string]json.RawMessage
		if err := object(value, &keys); err != nil {
			return err
		}
		a.level, a.text = text(keys["level"]), text(keys["message"])
		if raw := keys["job"]; raw != nil && string(raw) != "null" {
			return a.number(raw)
		}
		return nil
	},
	"report": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind = kindReport
		var keys map[string]json.RawMessage
		if err := object(value, &keys); err != nil {
			return err
		}
		// The maker of the slice judges the report.
		a.line = keys["line"]
		return a.number(keys["job"])
	},
	"error": func(a *answer, value json.RawMessage, _ map[string]json.RawMessage) error {
		a.kind, a.text = kindError, text(value)
		return nil
	},
}

func (a *answer) number(value json.RawMessage) error {
	if json.Unmarshal(value, &a.job) != nil || a.job < 1 {
		return errNumber
	}
	return nil
}

func object(value json.RawMessage, into any) error {
	if len(value) == 0 || value[0] != '{' {
		return errors.New("is not an object")
	}
	return json.Unmarshal(value, into)
}

// text returns a JSON string, or any other value as it is written.
func text(value json.RawMessage) string {
	var s string
	switch {
	case len(value) == 0 || string(value) == "null":
		return ""
	case json.Unmarshal(value, &s) == nil:
		return s
	}
	return string(value)
}

// numeral returns a JSON number; "" if value is none.
func numeral(value json.RawMessage) json.Number {
	var n json.Number
	if len(value) > 0 && strings.IndexByte("-0123456789", value[0]) >= 0 && json.Unmarshal(value, &n) == nil {
		return n
	}
	return ""
}

// later reads the job's number, and after.
func (a *answer) later(value json.RawMessage, keys map[string]json.RawMessage) error {
	if err := a.number(value); err != nil {
		return err
	}
	var seconds float64
	if raw := keys["after"]; raw != nil && json.Unmarshal(raw, &seconds) != nil {
		return errors.New(`its "after" is not a number of seconds`)
	}
	const most = 100 * 365 * 24 * 3600
	a.after = time.Duration(min(max(seconds, 0), most) * float64(time.Second))
	return nil
}
