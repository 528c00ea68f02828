package wire

import "time"

// Stamp writes a time for a program: RFC 3339, UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// AppendTime appends a Stamp as a JSON string; null if t is zero.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return AppendString(b, Stamp(t))
}
