package procfs

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TaskLimits returns the current limits on this process and its descendants, without absent and
// unreadable ones.
func TaskLimits() []TaskLimit {
	var nproc uint64 = unix.RLIM_INFINITY
	var limit unix.Rlimit
	// The kernel does not count the processes of root.
	if os.Getuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil {
		nproc = limit.Cur
	}
	return taskLimits("/", nproc)
}

func taskLimits(root string, nproc uint64) (limits []TaskLimit) {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	least := TaskLimit{Max: math.MaxInt64, Raise: "TasksMax= in the unit of systemd, --pids-limit of the container"}
	for _, file := range limitFiles(string(groups), "pids", "pids.max", "pids.max") {
		if n, ok := readCount(filepath.Join(root, file)); ok && n < least.Max {
			least.Name, least.Max = "/"+file, n
		}
	}
	if least.Name != "" {
		limits = append(limits, least)
	}
	if nproc <= math.MaxInt64 {
		limits = append(limits, TaskLimit{
			Name: "RLIMIT_NPROC, which counts all processes of the user,", Max: int64(nproc),
			Raise: "LimitNPROC= in the unit of systemd, nproc in /etc/security/limits.conf",
		})
	}
	for _, name := range []string{"threads-max", "pid_max"} {
		if n, ok := readCount(filepath.Join(root, "proc/sys/kernel", name)); ok {
			limits = append(limits, TaskLimit{
				Name: "kernel." + name + ", which counts the whole machine,", Max: n, Raise: "sysctl kernel." + name,
			})
		}
	}
	return limits
}

// limitFiles returns the files that may limit a control group: its own and those of the groups
// around it. name is the file in version 2, old in version 1, "" = none there.
func limitFiles(groups, controller, name, old string) (files []string) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", name
		if parts[1] != "" {
			if old == "" || !slices.Contains(strings.Split(parts[1], ","), controller) {
				continue
			}
			base, file = base+"/"+controller, old
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			files = append(files, filepath.Join(base, path, file))
			if path == "/" {
				break
			}
		}
	}
	return files
}

// readCount reads a file that holds one number; "max" is not one.
func readCount(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
