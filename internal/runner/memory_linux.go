package runner

import (
	"os"
	"strconv"
	"strings"
)

// resident returns the memory of a process in bytes; 0 if unknown.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// proportional returns the memory of a process that shares some with other forks of its
// template: shared memory counts in part. It returns rss if that is unknown.
func proportional(pid int, rss int64) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return rss
	}
	for line := range strings.Lines(string(text)) {
		if amount, ok := strings.CutPrefix(line, "Pss:"); ok {
			if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(amount), " kB"), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return rss
}
