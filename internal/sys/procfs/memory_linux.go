package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns how many bytes of memory this process and what it starts may use together: that
// of the machine, or less where its control group is limited. It returns 0 if neither is known.
func Memory() int64 {
	machine, limit := memory("/")
	if limit > 0 {
		return limit
	}
	return machine
}

// MemoryLimit returns to how many bytes its control group, or one around it, limits this process
// and what it starts; 0 if that is no less than the machine has.
func MemoryLimit() int64 {
	_, limit := memory("/")
	return limit
}

// memory reads below root how much the machine has, and a limit that is less; 0 = not known, none.
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
	// Above memory.high the kernel slows a group down until it is of no use.
	files := append(limitFiles(string(groups), "memory", "memory.max", "memory.limit_in_bytes"),
		limitFiles(string(groups), "memory", "memory.high", "")...)
	for _, file := range files {
		// Version 1 writes a number above any memory where there is no limit.
		if n, ok := readCount(filepath.Join(root, file)); ok && n > 0 && (machine == 0 || n < machine) && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return machine, limit
}
