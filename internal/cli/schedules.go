package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// checkSchedules gives schedules the queues of classes in Go, and refuses one that has
// none.
func (a *app) checkSchedules(r *config.Resolved) error {
	var homeless config.Errors
	for i := range r.Schedules {
		s := &r.Schedules[i]
		if s.Queue == "" {
			s.Queue = a.queueOf(r.Config, s.Class)
		}
		if err := wire.CheckQueue(s.Queue); err != nil {
			key := "schedule." + s.Name
			homeless = append(homeless, config.Error{Key: key, Source: r.Sources[key], Message: err.Error()})
		}
		if s.Queue == "" {
			key := "schedule." + s.Name
			homeless = append(homeless, config.Error{
				Key: key, Source: r.Sources[key], Message: fmt.Sprintf("has no queue, and class %s names none; write queue: reports", s.Class),
			})
		}
	}
	if len(homeless) > 0 {
		return configProblem(homeless)
	}
	return nil
}

// classSchedules are those of the program's own classes, but for names that the configuration
// has, too: there a person has written what they want.
func (a *app) classSchedules(c config.Config) []schedule.Definition {
	var own []schedule.Definition
	for _, name := range a.handlers.Classes() {
		class, _ := a.handlers.Lookup(name)
		configured := slices.ContainsFunc(c.Schedules, func(s schedule.Definition) bool { return s.Name == name })
		if class.Every == 0 || configured {
			continue
		}
		own = append(own, schedule.Definition{
			Name: name, Class: name, Queue: class.Queue, Args: json.RawMessage("[]"), Every: fmt.Sprintf("%ds", int64(class.Every.Seconds())),
			FirstIn: "1s", IfRunning: schedule.IfRunningSkip,
		})
	}
	return own
}

func (a *app) cronDefaults(c config.Config) schedule.Defaults {
	return schedule.Defaults{
		Queue:    func(class string) string { return a.queueOf(c, class) },
		RailsEnv: os.Getenv("RAILS_ENV"),
	}
}

// keeper names this daemon among those that keep schedules, also when it is started again:
// by its machine, its program, its file of configuration and its queues: containers may have
// the others in common.
func (a *app) keeper(self proc.Identity, c config.Config) string {
	file, err := filepath.Abs(a.configFile)
	if err != nil {
		file = a.configFile
	}
	return self.Host + ":" + schedule.Fingerprint(a.name, file, c.Queues.String())
}

// scheduleConfig turns a configuration into that of what keeps schedules. A daemon that
// leaves when all is empty keeps none.
func (a *app) scheduleConfig(c config.Config, self proc.Identity) schedule.Config {
	if c.UntilEmpty {
		return schedule.Config{}
	}
	t := schedule.Config{
		Schedules: slices.Concat(c.Schedules, a.classSchedules(c)), Stored: c.PersistentSchedules, Defaults: a.cronDefaults(c),
		Unique: c.Unique, Strict: c.UniqueQueuesStrict, Keeper: a.keeper(self, c),
	}
	if prefix, shared := c.SchedulerLockPrefix(); shared {
		// Not the host and the pid alone: containers may have those of others.
		t.Charge = store.Charge{Prefix: prefix, Me: fmt.Sprintf("resqued:%s:%d", self.Place(), self.PID)}
	}
	return t
}
