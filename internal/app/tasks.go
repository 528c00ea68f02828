package app

import (
	"fmt"
	"runtime"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// Tasks estimates how many tasks (kernel threads) the daemon may need.
func (p Program) Tasks(r *config.Resolved) config.Tasks {
	commands := false
	for _, class := range classesOf(r.Config, p.Handlers) {
		commands = commands || class.Command != nil
	}
	return r.Tasks(runtime.NumCPU(), commands)
}

// fewTasks warns of limits below the estimate of Tasks. At the limit the Go runtime cannot start
// a thread and ends the process, perhaps the master.
func (p Program) fewTasks(r *config.Resolved, limits []procfs.TaskLimit) (warnings []config.Warning) {
	need := p.Tasks(r)
	for _, limit := range limits {
		if int64(need.Sum()) <= limit.Max {
			continue
		}
		warnings = append(warnings, config.Warning{
			Key: "worker_count", Code: "few_tasks",
			Message: fmt.Sprintf("worker_count %d × thread_count %d may need %s, but %s is %d: where it is reached, Go ends the process"+
				" that cannot start a thread, perhaps the master. Raise it to %d or more (%s), or use fewer threads.",
				r.WorkerCount, r.ThreadCount, TasksText(need), limit.Name, limit.Max, need.Sum(), limit.Raise),
		})
	}
	return warnings
}

// littleMemory warns if the control group's limit (0 = none) is too low to derive max_rss from
// it.
func littleMemory(r *config.Resolved, limit int64) []config.Warning {
	if r.MaxRSS != config.RSSAuto || limit == 0 || r.AutoRSS(limit) > 0 {
		return nil
	}
	return []config.Warning{{
		Key: "max_rss", Code: "little_memory",
		Message: fmt.Sprintf("worker_count %d: the control group allows %s of memory, too little for so many worker processes to be replaced before it is full:"+
			" then the kernel kills one. Use fewer of them with more threads each, allow more memory, or set max_rss.",
			r.WorkerCount, config.FormatSize(limit)),
	}}
}

// maxRSS returns the memory above which a worker process started now is replaced.
func maxRSS(c *config.Config) int64 {
	if c.MaxRSS != config.RSSAuto {
		return c.MaxRSS
	}
	return c.AutoRSS(procfs.MemoryLimit())
}

// TasksText returns an estimate of tasks in words.
func TasksText(t config.Tasks) string {
	text := fmt.Sprintf("%d tasks, %d of the daemon", t.Sum(), t.Own)
	if t.Commands > 0 {
		text += fmt.Sprintf(" and one for each of %d commands", t.Commands)
	}
	return text
}

// Tuning returns what suits jobs on this machine, or on the share that this process's control
// group allows.
func Tuning() config.Tuning {
	return config.Tuned(min(runtime.NumCPU(), runtime.GOMAXPROCS(0)), procfs.Memory())
}
