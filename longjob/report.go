package longjob

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// report is a line that a command wrote on descriptor 3.
type report struct {
	// set has the changes of the state by key; a nil value clears the key. It is nil for a line
	// without a state.
	set         map[string]*string
	shown       *shown
	yield, done bool
	// units is how many units were done since the last line; default 1 for a line with a state.
	units int64
	// lock and unlock name a lock of CriticalUnit to take or release; empty = none.
	lock, unlock string
	// odd describes what was not understood and did no harm.
	odd string
}

// shown is progress for display; a nil field was not given.
type shown struct {
	step, message *string
	done, total   *int64
}

var (
	reportKeys   = []string{"state", "progress", "yield", "done", "lock", "unlock", "units"}
	progressKeys = []string{"step", "done", "total", "message"}
)

// parseReport reads a line. It is strict about everything that affects the state or the end of
// the slice. Progress and unknown keys may be odd.
func parseReport(line []byte) (r report, err error) {
	if !utf8.Valid(line) {
		return r, errors.New("it is not UTF-8")
	}
	top, err := object(line)
	if err != nil {
		return r, err
	}
	if raw, ok := top["state"]; ok {
		values, err := object(raw)
		if err != nil {
			return r, fmt.Errorf(`"state": %w`, err)
		}
		r.set = make(map[string]*string, len(values))
		for key, value := range values {
			text := string(value)
			r.set[stateOwn+key] = &text
			if text == "null" {
				r.set[stateOwn+key] = nil
			}
		}
	}
	for key, to := range map[string]*bool{"yield": &r.yield, "done": &r.done} {
		switch raw := string(top[key]); raw {
		case "true":
			*to = true
		case "", "false":
		default:
			return report{}, fmt.Errorf("%q is neither true nor false", key)
		}
	}
	for key, to := range map[string]*string{"lock": &r.lock, "unlock": &r.unlock} {
		raw, ok := top[key]
		if ok && (json.Unmarshal(raw, to) != nil || *to == "") {
			return report{}, fmt.Errorf("%q is not the name of a lock", key)
		}
	}
	if raw, ok := top["progress"]; ok {
		r.shown, r.odd = parseProgress(raw)
	}
	if raw, ok := top["units"]; ok {
		if r.units, ok = count(string(raw)); !ok && r.odd == "" {
			r.odd = `"units" is not a count`
		}
	} else if r.set != nil {
		r.units = 1
	}
	if text := oddKeys(top, reportKeys); r.odd == "" {
		r.odd = text
	}
	return r, nil
}

func object(text []byte) (map[string]json.RawMessage, error) {
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	return m, nil
}

// parseProgress takes what it understands. odd describes the rest.
func parseProgress(raw json.RawMessage) (s *shown, odd string) {
	m, err := object(raw)
	if err != nil {
		return nil, `"progress": ` + err.Error()
	}
	s = &shown{}
	for key, to := range map[string]**string{"step": &s.step, "message": &s.message} {
		var text string
		switch value, ok := m[key]; {
		case !ok:
		case value[0] != '"' || json.Unmarshal(value, &text) != nil:
			odd = fmt.Sprintf(`%q of "progress" is not text`, key)
		default:
			*to = &text
		}
	}
	for key, to := range map[string]**int64{"done": &s.done, "total": &s.total} {
		switch value, ok := m[key]; {
		case !ok, string(value) == "null": // the total is not known
		default:
			n, ok := count(string(value))
			if !ok {
				odd = fmt.Sprintf(`%q of "progress" is not a count`, key)
				continue
			}
			*to = &n
		}
	}
	if text := oddKeys(m, progressKeys); odd == "" {
		odd = text
	}
	return s, odd
}

// count reads a whole number from 0 on, also in the notation of a float.
func count(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, n >= 0
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

func oddKeys(m map[string]json.RawMessage, known []string) string {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			return fmt.Sprintf("%q is not known; there are %s", cut(key), strings.Join(known, ", "))
		}
	}
	return ""
}
