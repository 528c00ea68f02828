package cli

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/procfs"
)

// tasks estimates how many tasks of the kernel the daemon may need.
func (a *app) tasks(r *config.Resolved) config.Tasks {
	commands := len(r.Handlers) > 0 || slices.ContainsFunc(a.handlers.Classes(), func(name string) bool {
		class, _ := a.handlers.Lookup(name)
		return class.Command != nil
	})
	return r.Tasks(runtime.NumCPU(), commands)
}

// fewTasks warns of limits that leave less than that. Beyond them the runtime of Go cannot
// start a thread, which ends the process: the master, too.
func (a *app) fewTasks(r *config.Resolved, limits []procfs.TaskLimit) (warnings []config.Warning) {
	need := a.tasks(r)
	for _, limit := range limits {
		if int64(need.Sum()) <= limit.Max {
			continue
		}
		warnings = append(warnings, config.Warning{
			Key: "worker_count", Code: "few_tasks",
			Message: fmt.Sprintf("worker_count %d × thread_count %d may need %s, but %s is %d: where it is reached, Go ends the process"+
				" that cannot start a thread, perhaps the master. Raise it to %d or more (%s), or use fewer threads.",
				r.WorkerCount, r.ThreadCount, tasksText(need), limit.Name, limit.Max, need.Sum(), limit.Raise),
		})
	}
	return warnings
}

func tasksText(t config.Tasks) string {
	text := fmt.Sprintf("%d tasks, %d of the daemon", t.Sum(), t.Own)
	if t.Commands > 0 {
		text += fmt.Sprintf(" and one for each of %d commands", t.Commands)
	}
	return text
}
