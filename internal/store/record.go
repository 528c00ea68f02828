package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// maxEpoch is the first second of the year 10000: later ones are not times.
const maxEpoch = 253402300800

// errRecord: this program did not write the in-flight record.
var errRecord = errors.New("not a record of resqued")

// recordNumbers is the number of numbers in a record's head: the lengths of the first four parts of its body,
// then fence, deaths, blame and the start in milliseconds.
const recordNumbers = 8

// ParseRecord reads an in-flight record, written by lua/exchange_take.lua or by give in lua/exchange_locks.lua.
func ParseRecord(token, record string) (Reserved, error) {
	rest, ok := strings.CutPrefix(record, "3 ")
	var n [recordNumbers]int64
	for i := range n {
		var digits string
		digits, rest, _ = strings.Cut(rest, " ")
		number, err := strconv.ParseUint(digits, 10, 60)
		n[i], ok = int64(number), ok && err == nil //nolint:gosec // of 60 bits
	}
	at, body, whole := strings.Cut(rest, "\n")
	size, left := int64(0), int64(len(body))
	for _, part := range n[:4] {
		ok = ok && part <= left-size
		size += part
	}
	if !ok || !whole || at == "" || strings.Contains(at, " ") {
		return Reserved{}, fmt.Errorf("in-flight record %q: %w", token, errRecord)
	}
	next := func(size int64) (part string) {
		part, body = body[:size], body[size:]
		return part
	}
	r := Reserved{Token: token, Queue: next(n[0]), Worker: next(n[1]), LockKey: next(n[2])}
	r.Capped = next(n[3]) != ""
	// Not copied, as it may be large: the client library made the text of this reply, and nothing else refers
	// to this part.
	r.Payload = unsafe.Slice(unsafe.StringData(body), len(body)) //nolint:gosec // as said
	r.Fence, r.Deaths, r.Blame, r.StartedAt = n[4], int(n[5]), int(n[6]), time.UnixMilli(n[7])
	if r.Unique = at != "-"; r.Unique {
		if at, err := strconv.ParseInt(at, 10, 64); err == nil && at > 0 && at < maxEpoch {
			r.EnqueuedAt = time.Unix(at, 0)
		}
	}
	return r, nil
}
