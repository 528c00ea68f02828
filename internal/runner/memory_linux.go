package runner

import (
	"bytes"
	"os"
	"strconv"
)

// resident returns the memory of a process in bytes, with what it shares; 0 = unknown.
func resident(pid int) int64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if fields := bytes.Fields(text); len(fields) > 1 {
		pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// proportional returns the memory of a process in bytes, with its share of what it shares; 0 =
// unknown. The kernel takes some milliseconds for it.
func proportional(pid int) int64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	for line := range bytes.Lines(text) {
		if amount, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kib, _ := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(amount), []byte(" kB"))), 10, 64)
			return kib << 10
		}
	}
	return 0
}
