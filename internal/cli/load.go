package cli

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/store"
)

// load reads the configuration for a verb that only talks to Redis, and prints
// its warnings. With --dev the Redis is that of a running "resqued dev".
func (a *app) load(c *cobra.Command) (*config.Resolved, error) {
	r, err := a.loadAs(c, config.Options{})
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		a.warn("%s", w.Message)
	}
	return r, nil
}

// loadAs reads the configuration with what one verb asks for.
func (a *app) loadAs(c *cobra.Command, o config.Options) (*config.Resolved, error) {
	o.Flags = c.Flags()
	r, err := config.Load(o)
	if err != nil {
		return nil, configProblem(err)
	}
	a.configFile = r.File
	if err := a.checkHandlers(r); err != nil {
		return nil, err
	}
	if err := a.checkSchedules(r); err != nil {
		return nil, err
	}
	if a.dev {
		found, err := devredis.Find(devDir())
		if err != nil {
			return nil, err
		}
		useDevRedis(r, found)
	}
	return r, nil
}

// useDevRedis puts the Redis of "resqued dev" in the place of the configured one.
func useDevRedis(r *config.Resolved, url string) {
	r.RedisURL, r.RedisCAFile, r.RedisCA = url, "", ""
}

// checkHandlers refuses a class that has two handlers, which no worker process
// could work with.
func (a *app) checkHandlers(r *config.Resolved) error {
	var twice config.Errors
	for _, class := range a.handlers.Classes() {
		if _, ok := r.Handlers[class]; ok {
			key := "handlers." + class
			twice = append(twice, config.Error{
				Key: key, Source: r.Sources[key], Message: "the class is registered in Go too; remove one of them",
			})
		}
	}
	if len(twice) > 0 {
		return configProblem(twice)
	}
	return nil
}

// configProblem lists everything that is wrong, one line each.
func configProblem(err error) error {
	p := &problem{exit: exitUsage, code: "config", cause: err}
	var all config.Errors
	if !errors.As(err, &all) {
		p.lines = []string{err.Error()}
		return p
	}
	for _, one := range all {
		p.lines = append(p.lines, one.Error())
	}
	return p
}

// open returns the store for a verb that only looks.
func (a *app) open(c *cobra.Command) (*store.Store, error) {
	r, err := a.load(c)
	if err != nil {
		return nil, err
	}
	return openStore(r.Config, "resqued-cli")
}

func openStore(c config.Config, client string) (*store.Store, error) {
	return store.Open(storeOptions(c, client))
}

// connections is how many a process may have to Redis. It has a few, and one more for each
// thread that asks for a class lock at the same moment. What it is for: after as many failed
// dials go-redis dials no more but once a second, and there is a lease to renew when Redis is back.
const connections = 100

func storeOptions(c config.Config, client string) store.Options {
	lease, beat := leaseAndBeat(c)
	return store.Options{
		URL: c.RedisURL, Namespace: c.Namespace, ClientName: client, PoolSize: connections,
		Lease: lease, BeatEvery: beat, LockTTL: c.JobLockDuration, LockPayload: c.JobLockKey == jobkey.Payload,
		CA: c.RedisCA, AllowEviction: c.AllowEviction, FailureLists: c.FailureLists(),
	}
}

// devDir is where "resqued dev" leaves the address of its Redis.
func devDir() string { return devredis.Dir(os.Getenv("XDG_RUNTIME_DIR")) }

// leaseAndBeat derives the timing of processes from that of job locks: one beat
// extends both. Nobody gains by a lease above the default, which only delays the
// recovery of jobs whose machine is gone.
func leaseAndBeat(c config.Config) (lease, beat time.Duration) {
	lease = min(store.DefaultLease, c.JobLockDuration)
	return lease, min(store.DefaultBeatEvery, c.HeartbeatFrequency, lease*2/7)
}
