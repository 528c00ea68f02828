package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func machine(ctx context.Context) map[string]string {
	m := map[string]string{
		"date":  time.Now().UTC().Format("2006-01-02 15:04 MST"),
		"go":    runtime.Version(),
		"cores": fmt.Sprint(runtime.NumCPU()),
	}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m["processor"] = strings.TrimSpace(value)
		}
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		if value, found := strings.CutPrefix(line, "MemTotal:"); found {
			var kib float64
			_, _ = fmt.Sscan(value, &kib)
			m["memory"] = fmt.Sprintf("%.0f GiB", kib/(1<<20))
		}
	}
	for line := range strings.Lines(read("/etc/os-release")) {
		if value, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
			m["system"] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	m["kernel"] = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	m["load before"] = strings.Join(strings.Fields(read("/proc/loadavg"))[:3], " ")
	for name, argv := range map[string][]string{"redis": {"redis-server", "--version"}, "postgresql": {"postgres", "--version"}} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output(); err == nil {
			m[name] = strings.TrimSpace(string(out))
			if _, rest, found := strings.Cut(m[name], " v="); found {
				m[name] = strings.Fields(rest)[0]
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, name := range []string{"hibiken/asynq", "riverqueue/river", "gocraft/work", "redis/go-redis/v9", "jackc/pgx/v5"} {
				if dep.Path == "github.com/"+name {
					m[name] = dep.Version
				}
			}
		}
	}
	return m
}

// processors is processor time in kernel ticks: all of it, and the part given to others.
type processors struct{ all, given float64 }

func processorTime() (p processors) {
	first, _, _ := strings.Cut(read("/proc/stat"), "\n")
	for i, field := range strings.Fields(strings.TrimPrefix(first, "cpu")) {
		n, _ := strconv.ParseFloat(field, 64)
		if i < 8 { // later fields are included in these
			p.all += n
		}
		if i == 7 {
			p.given = n
		}
	}
	return p
}

// stolen returns the share that a hypervisor gave to others between two readings.
func (p processors) stolen(later processors) float64 {
	if later.all <= p.all {
		return 0
	}
	return (later.given - p.given) / (later.all - p.all)
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text) + "\n"
}
