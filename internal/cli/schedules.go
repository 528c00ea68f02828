package cli

import (
	"fmt"
	"os"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/cron"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/ticker"
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

func (a *app) cronDefaults(c config.Config) cron.Defaults {
	return cron.Defaults{
		Queue:    func(class string) string { return a.queueOf(c, class) },
		RailsEnv: os.Getenv("RAILS_ENV"),
	}
}

// tickerConfig turns a configuration into that of what keeps schedules. A daemon that
// leaves when all is empty keeps none.
func (a *app) tickerConfig(c config.Config, self proc.Identity) ticker.Config {
	if c.UntilEmpty {
		return ticker.Config{}
	}
	t := ticker.Config{
		Schedules: c.Schedules, Stored: c.PersistentSchedules, Defaults: a.cronDefaults(c),
		Unique: c.Unique, Strict: c.UniqueQueuesStrict,
	}
	if prefix, shared := c.SchedulerLockPrefix(); shared {
		t.Charge = store.Charge{Prefix: prefix, Me: fmt.Sprintf("resqued:%s:%d", self.Host, os.Getpid())}
	}
	return t
}
