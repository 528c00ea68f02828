package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// FailureID names a failure record by its content, as its place in the list changes.
func FailureID(record []byte) string {
	sum := sha256.Sum256(record)
	return hex.EncodeToString(sum[:])
}

// MarkRetried adds "retried_at" to a failure record, as Ruby's Resque does for a retried job. All
// other bytes stay.
func MarkRetried(record []byte, at time.Time) ([]byte, error) {
	value := AppendString(nil, FormatFail(at))
	start, end, err := memberOf(record, "retried_at")
	if err != nil {
		return nil, fmt.Errorf("failure record %s: %w", excerpt(record), err)
	}
	if end > 0 {
		return append(append(append([]byte(nil), record[:start]...), value...), record[end:]...), nil
	}
	closing := bytes.LastIndexByte(record, '}')
	out := append([]byte(nil), bytes.TrimRight(record[:closing], " \t\r\n")...)
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	out = append(append(out, `"retried_at":`...), value...)
	return append(out, record[closing:]...), nil
}

// memberOf returns the position of a key's value in a JSON object; end is 0 if it is missing. The last
// of equal keys counts.
func memberOf(object []byte, name string) (start, end int, err error) {
	if !json.Valid(object) {
		return 0, 0, errors.New("it is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, errors.New("it is not an object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, err
		}
		if key == name {
			end = int(d.InputOffset())
			start = end - len(value)
		}
	}
	return start, end, nil
}

// Unretried returns a failure record without its last mark as retried; ok reports whether it had
// one.
func Unretried(record []byte) (before []byte, ok bool) {
	const mark = `,"retried_at":"`
	at := bytes.LastIndex(record, []byte(mark))
	if at < 0 {
		return record, false
	}
	_, rest, ended := bytes.Cut(record[at+len(mark):], []byte{'"'})
	if !ended {
		return record, false
	}
	return append(slices.Clip(record[:at]), rest...), true
}
