package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OOMKills returns the count of this process's control group, or of the machine if the group's
// is unreadable.
func OOMKills() OOM { return oomKills("/") }

func oomKills(root string) OOM {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	// In a container, version 1's path is relative to another root; the last file then counts.
	for _, file := range limitFiles(string(groups), "memory", "memory.events", "memory.oom_control") {
		if n, ok := oomCount(filepath.Join(root, file)); ok {
			return OOM{Kills: n, Where: "its control group"}
		}
	}
	if n, ok := oomCount(filepath.Join(root, "proc/vmstat")); ok {
		return OOM{Kills: n, Where: "this machine"}
	}
	return OOM{}
}

// oomCount reads the line "oom_kill 3".
func oomCount(file string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "oom_kill "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
