package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns how many bytes of memory this process and what it starts may use together: that
// of the machine, or less where its control group is limited. It returns 0 if neither is known.
func Memory() int64 { return memory("/") }

// memory reads below root.
func memory(root string) (least int64) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	for line := range strings.Lines(string(text)) {
		if amount, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(amount), " kB"), 10, 64)
			if err == nil {
				least = kib << 10
			}
		}
	}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for _, file := range limitFiles(string(groups), "memory", "memory.max", "memory.limit_in_bytes") {
		// Version 1 writes a number above any memory where there is no limit.
		if n, ok := readCount(filepath.Join(root, file)); ok && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
