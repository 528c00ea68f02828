package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// devRedisVariable has the URL of the Redis of the "resqued dev" that started this process.
const devRedisVariable = "RESQUED_DEV_REDIS"

// load reads the configuration for a verb that only talks to Redis, and prints its warnings. With
// --dev the Redis is that of a running "resqued dev".
func (a *cli) load(c *cobra.Command) (*config.Resolved, error) {
	return a.loadOf(c, "")
}

// loadOf is load for a store; "" = the one that flags or environment name.
func (a *cli) loadOf(c *cobra.Command, store string) (*config.Resolved, error) {
	r, err := a.loadOne(c, config.Options{Store: store}, "this command needs")
	if err == nil {
		a.warnOf(r)
	}
	return r, err
}

// loadOne is loadAs for a verb that needs one of several stores; what says so.
func (a *cli) loadOne(c *cobra.Command, o config.Options, what string) (*config.Resolved, error) {
	r, err := a.loadAs(c, o)
	if err == nil {
		err = hasStores(r, what)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (out *output) warnOf(r *config.Resolved) {
	for _, w := range r.Warnings {
		if slices.Contains(concernsAll, w.Key) {
			out.warn("%s", w.Message)
		}
	}
}

// concernsAll are the keys whose warnings matter to every verb, not only to daemons.
var concernsAll = []string{
	config.ConfigFlag, "redis_url", "redis_password_file", "redis_ca_file", "redis_key_file", "namespace", "database_url", "database_url_file", "failure_backend",
}

// loadAs reads the configuration with a verb's options.
func (a *cli) loadAs(c *cobra.Command, o config.Options) (*config.Resolved, error) {
	o.Flags, o.Classes = c.Flags(), a.program().ClassQueues()
	if o.Search = a.places; a.dev || c.Name() == devVerb {
		// A trial must not use the production configuration.
		o.Search.Etc, o.Search.Credstore = "", ""
	}
	r, err := config.Load(o)
	if err != nil {
		return nil, configProblem(err)
	}
	a.loaded = r
	// This applies to all that is shown.
	c.SetContext(view.Promising(redact.Into(c.Context(), r.Redact), r.Within.Of))
	for _, one := range r.Stores {
		if err := a.program().Check(one); err != nil {
			return nil, configProblem(err)
		}
	}
	if len(r.Stores) > 0 {
		r.Warnings = append(r.Warnings, a.idleSchedules(r)...)
		if a.dev || c.Name() == devVerb {
			return nil, hasStores(r, "a development daemon works")
		}
		return r, nil
	}
	if err := a.program().Check(r); err != nil {
		return nil, configProblem(err)
	}
	if a.dev {
		found := os.Getenv(devRedisVariable)
		if found == "" {
			if found, err = devredis.Find(devDir()); err != nil {
				return nil, err
			}
		}
		useDevRedis(r, found)
	}
	return r, nil
}

// useDevRedis replaces the configured Redis by that of "resqued dev".
func useDevRedis(r *config.Resolved, url string) {
	r.Config = r.At(url)
	r.RedisCAFile, r.RedisCertFile, r.RedisKeyFile = "", "", ""
}

// checkServers checks what a configuration needs of Redis and PostgreSQL, without asking them.
func (a *cli) checkServers(c config.Config) error {
	return configProblem(cmp.Or(a.program().CheckRedis(c), a.program().CheckDatabase(c)))
}

func configProblem(err error) error {
	if err == nil {
		return nil
	}
	p := &problem{exit: exitUsage, code: "config", cause: err}
	var all config.Errors
	if !errors.As(err, &all) {
		p.lines = []string{err.Error()}
		return p
	}
	for _, one := range all {
		p.lines = append(p.lines, one.Error())
		if one.Source.Found {
			p.hint = fmt.Sprintf("%s was found, not named: --config FILE reads another one, --config %s reads none.", one.Source.Name, config.NoFile)
		}
	}
	return p
}

// devDir is where "resqued dev" writes the address of its Redis.
func devDir() string { return devredis.Dir(os.Getenv("XDG_RUNTIME_DIR")) }

// severalStores is the error of a verb that needs one of several stores.
type severalStores struct {
	*problem
	loaded *config.Resolved
}

func (e *severalStores) Unwrap() error { return e.problem }

// hasStores refuses a configuration of several stores where one is needed.
func hasStores(r *config.Resolved, what string) error {
	if len(r.Stores) == 0 {
		return nil
	}
	return &severalStores{loaded: r, problem: usage("", "%s has several stores, and %s one: name it with --%s, one of %s",
		r.File, what, config.StoreFlag, strings.Join(storeNames(r), ", "))}
}

func storeNames(r *config.Resolved) []string {
	names := make([]string, len(r.Routes))
	for i, route := range r.Routes {
		names[i] = route.Store
	}
	return names
}

func homeOf(r *config.Resolved, queue string) (string, error) {
	if home := config.RouteOf(r.Stores[0].Routes, queue); home != "" {
		return home, nil
	}
	return "", usage("Add it to the routes of one, or name one with --"+config.StoreFlag+": "+strings.Join(storeNames(r), ", "),
		"queue %q belongs to no store", wire.Printable(queue, 200))
}

func each(r *config.Resolved) []*config.Resolved {
	if len(r.Stores) > 0 {
		return r.Stores
	}
	return []*config.Resolved{r}
}

// idleSchedules warns of schedules that no master keeps: the daemon does not work their store.
func (a *cli) idleSchedules(r *config.Resolved) (warnings []config.Warning) {
	for _, one := range r.Stores {
		if len(one.Queues.Patterns) > 0 {
			continue
		}
		for _, s := range slices.Concat(one.Schedules, a.program().ClassSchedules(one.Config)) {
			warnings = append(warnings, config.Warning{Key: "stores", Code: "idle_schedule", Message: fmt.Sprintf(
				"schedule %s is kept by no daemon of this configuration: its queue, %s, belongs to store %s, which has no queues here. Give it to a daemon that works that store.",
				s.Name, s.Queue, one.Store)})
		}
	}
	return warnings
}
