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
		if n, ok := kibOf(line, "MemTotal:"); ok {
			machine = n
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

// kibOf reads the line "name 4096 kB", in bytes.
func kibOf(line, name string) (n int64, ok bool) {
	amount, ok := strings.CutPrefix(line, name)
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(amount), " kB"), 10, 64)
	return kib << 10, ok && err == nil
}

// Resident returns the memory of a process in bytes; 0 if unknown.
func Resident(pid int) int64 {
	text, err := read("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// Proportional returns the memory of a process that shares some with others, such as forks of one
// process: shared memory counts in part. It returns rss if that is unknown.
func Proportional(pid int, rss int64) int64 {
	text, _ := read("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	for line := range strings.Lines(string(text)) {
		if n, ok := kibOf(line, "Pss:"); ok {
			return n
		}
	}
	return rss
}
