package wire

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Slice returns the run of a long job of which a payload is a slice: its only argument is the
// run, and its id is that with the number of the slice behind a dot.
func (e Envelope) Slice() (run string, ok bool) {
	if len(e.Args) != 1 || json.Unmarshal(e.Args[0], &run) != nil || run == "" {
		return "", false
	}
	number, ok := strings.CutPrefix(e.ID, run+".")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 1 {
		return "", false
	}
	return run, true
}
