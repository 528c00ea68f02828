package wire

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Slice returns the run of the long job that a payload is a slice of. The run is its only argument;
// its id is the run, a dot and the slice's number.
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
