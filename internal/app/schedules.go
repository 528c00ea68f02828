package app

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/schedule/runner"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// checkSchedules completes schedules without a queue with their class's, and refuses those that
// still have none.
func (p Program) checkSchedules(r *config.Resolved) error {
	var homeless config.Errors
	for i := range r.Schedules {
		s := &r.Schedules[i]
		if s.Queue == "" {
			s.Queue = p.QueueOf(r.Config, s.Class)
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
		return homeless
	}
	return r.KeepSchedules()
}

// ClassSchedules returns the schedules of the program's own classes, except those that the
// configuration also names.
func (p Program) ClassSchedules(c config.Config) []schedule.Definition {
	return slices.DeleteFunc(schedule.OfClasses(p.Handlers), func(own schedule.Definition) bool {
		return !c.Home(own.Queue) || slices.Contains(c.SchedulesElsewhere, own.Name) || slices.ContainsFunc(c.Schedules, func(s schedule.Definition) bool { return s.Name == own.Name })
	})
}

// unhandled warns of schedules whose jobs this daemon would take without a handler.
func (p Program) unhandled(r *config.Resolved) (warnings []config.Warning) {
	known := slices.AppendSeq(p.Registry().Classes(), maps.Keys(r.Handlers))
	if len(known) == 0 {
		return nil // another warning covers this
	}
	for _, s := range r.Schedules {
		works := func(c selector.Choice) bool { return c.Queue == s.Queue }
		if wire.ClassIn(known, s.Class) || !slices.ContainsFunc(r.Queues.Resolve([]string{s.Queue}), works) {
			continue // or another daemon works them
		}
		warnings = append(warnings, config.Warning{
			Key: "schedule." + s.Name, Code: "no_handler",
			Message: fmt.Sprintf("No handler is known for class %s: each job of schedule %s will fail.", wire.Printable(s.Class, 200), wire.Printable(s.Name, 200)),
		})
	}
	return warnings
}

// ScheduleDefaults returns the defaults for schedules that resque-scheduler keeps in Redis.
func (p Program) ScheduleDefaults(c config.Config) schedule.Defaults {
	return schedule.Defaults{
		Queue:    func(class string) string { return p.QueueOf(c, class) },
		RailsEnv: os.Getenv("RAILS_ENV"),
	}
}

// keeper returns this daemon's name as a keeper of schedules, which stays the same after a
// restart. It covers machine, program, configuration file and queues, because containers may
// share all but one of these.
func (p Program) keeper(self proc.Identity, r *config.Resolved) string {
	file, err := filepath.Abs(r.File)
	if err != nil {
		file = r.File
	}
	return self.Host + ":" + schedule.Fingerprint(p.Name, file, r.Queues.String())
}

// scheduleConfig returns the settings for keeping schedules. A daemon that ends when all queues
// are empty keeps none.
func (p Program) scheduleConfig(r *config.Resolved, self proc.Identity) runner.Config {
	c := r.Config
	if c.UntilEmpty {
		return runner.Config{}
	}
	t := runner.Config{
		Schedules: slices.Concat(c.Schedules, p.ClassSchedules(c)), Stored: c.PersistentSchedules, Defaults: p.ScheduleDefaults(c),
		Unique: c.Unique, Strict: c.UniqueQueuesStrict, Keeper: p.keeper(self, r),
	}
	if prefix, shared := c.SchedulerLockPrefix(); shared {
		// Host and pid are not unique among containers.
		t.SchedulerLock = store.SchedulerLock{Prefix: prefix, Me: fmt.Sprintf("resqued:%s:%d", self.Place(), self.PID)}
	}
	return t
}
