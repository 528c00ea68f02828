package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns how many bytes this process and its descendants may use together: the machine's
// memory, or the limit of their control group if that is less; 0 = unknown.
func Memory() int64 {
	machine, limit := memory("/")
	if limit > 0 {
		return limit
	}
	return machine
}

// MemoryLimit returns the limit of this process's control group or of one around it, in bytes; 0
// = none below the machine's memory.
func MemoryLimit() int64 {
	_, limit := memory("/")
	return limit
}

// memory reads, below root, the machine's memory (0 = unknown) and a smaller limit (0 = none).
func memory(root string) (machine, limit int64) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	for line := range strings.Lines(string(text)) {
		if amount, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(amount), " kB"), 10, 64)
			if err == nil {
				machine = kib << 10
			}
		}
	}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	// Above memory.high the kernel slows a group down until it is useless.
	files := append(limitFiles(string(groups), "memory", "memory.max", "memory.limit_in_bytes"),
		limitFiles(string(groups), "memory", "memory.high", "")...)
	for _, file := range files {
		// Without a limit, version 1 writes a number above any memory.
		if n, ok := readCount(filepath.Join(root, file)); ok && n > 0 && (machine == 0 || n < machine) && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return machine, limit
}
