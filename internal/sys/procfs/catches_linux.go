package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"
)

// Catches reports whether a process has a handler for a signal.
func Catches(pid int, s syscall.Signal) (bool, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	text, err := read(path)
	if err != nil {
		return false, err
	}
	// Line breaks in the name, on the first line, are escaped.
	_, rest, _ := bytes.Cut(text, []byte("\nSigCgt:\t"))
	mask, _, _ := bytes.Cut(rest, []byte("\n"))
	caught, err := strconv.ParseUint(string(mask), 16, 64)
	if err != nil {
		return false, fmt.Errorf("%s: SigCgt: %w", path, err)
	}
	return caught>>(s-1)&1 != 0, nil
}
