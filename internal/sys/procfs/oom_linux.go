package procfs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OOMKills returns the count of this process's control group, or of the machine if the group's
// is unreadable.
func OOMKills() OOM { return oomKills("/") }

func oomKills(root string) OOM {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for _, file := range oomFiles(string(groups)) {
		if n, ok := oomCount(filepath.Join(root, "sys/fs/cgroup", file)); ok {
			return OOM{Kills: n, Where: "its control group"}
		}
	}
	if n, ok := oomCount(filepath.Join(root, "proc/vmstat")); ok {
		return OOM{Kills: n, Where: "this machine"}
	}
	return OOM{}
}

// oomFiles returns the files that may have a control group's count: version 2 first, then
// version 1, whose paths in a container are relative to another root.
func oomFiles(groups string) []string {
	var files []string
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			files = append([]string{filepath.Join(parts[2], "memory.events")}, files...)
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			files = append(files, filepath.Join("memory", parts[2], "memory.oom_control"), "memory/memory.oom_control")
		}
	}
	return files
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
