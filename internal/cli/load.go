package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/view"
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
	r, err := a.loadAs(c, config.Options{Store: store})
	if err != nil {
		return nil, err
	}
	if err := hasStores(r, "this command needs"); err != nil {
		return nil, err
	}
	a.warnOf(r)
	return r, nil
}

func (a *cli) warnOf(r *config.Resolved) {
	for _, w := range r.Warnings {
		if slices.Contains(concernsAll, w.Key) {
			a.warn("%s", w.Message)
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
	c.SetContext(view.Promising(view.Redacting(c.Context(), r.Redact), r.Within.Of))
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
