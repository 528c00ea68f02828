package store

import "time"

// letters returns the letters whose condition, given before each, is true.
func letters(pairs ...any) string {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			b = append(b, byte(pairs[i+1].(rune)))
		}
	}
	return string(b)
}

// with appends a list to a script's arguments.
func with[T any](args []any, list ...T) []any {
	for _, one := range list {
		args = append(args, one)
	}
	return args
}

// seconds rounds up: a lock must not end before the promised time.
func seconds(d time.Duration) int64 { return roundUp(d, time.Second) }

// milliseconds rounds up: no job may run before its time. It does not overflow.
func milliseconds(d time.Duration) int64 { return roundUp(d, time.Millisecond) }

// roundUp returns the number of units, rounded up; a negative duration has none.
func roundUp(d, unit time.Duration) int64 {
	n := int64(max(d, 0) / unit)
	if d > 0 && d%unit > 0 {
		n++
	}
	return n
}
