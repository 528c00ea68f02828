package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

// Commands returns the handlers of the configuration as classes, by name.
func Commands(c config.Config) map[string]resqued.Class {
	classes := map[string]resqued.Class{}
	for name, h := range c.Handlers {
		command := resqued.Command{Argv: h.Command, Runner: h.Runner, Dir: h.Dir, Env: envList(h.Env), KillAfter: h.KillAfter, OnLeaving: h.LeavingSignal()}
		if l := h.LongJob; l != nil {
			classes[name] = longjob.Command(name, command, longjob.Options{
				Queue: h.Queue, RequeueQueue: l.RequeueQueue, Slice: l.Slice, Grace: l.Grace, CheckIn: l.CheckIn, Retries: l.Retries,
				RetryAfter: l.RetryAfter, MaxDeaths: l.MaxDeaths, Keep: l.Keep, TenantSlices: l.TenantSlices, UUIDArgument: l.UUIDArgument, StateLimit: int(l.StateLimit),
			})
			continue
		}
		classes[name] = resqued.Class{
			Name: name, Queue: h.Queue, Timeout: h.Timeout, MaxRun: h.MaxRun, AtMostOnce: h.AtMostOnce, Lock: classLock(h.Lock, RubyStyle(c)), Retry: classRetry(h.Retry),
			Command: &command,
		}
	}
	return classes
}

// runnerClasses returns the classes of the runners that perform only some.
func runnerClasses(c config.Config) map[string][]string {
	classes := map[string][]string{}
	for name, r := range c.Runners {
		if len(r.Classes) > 0 {
			classes[name] = r.Classes
		}
	}
	return classes
}

// classLock returns the lock of a command handler, nil for none.
func classLock(l *config.HandlerLock, style wire.RubyStyle) *resqued.ClassLock {
	if l == nil {
		return nil
	}
	lock := &resqued.ClassLock{
		Timeout: l.Timeout, ClassWide: l.ClassWide, Redis: l.Redis, Store: l.Store, Loner: l.Loner, OnLocked: l.OnLocked,
	}
	if l.Key != "" {
		lock.Key = func(resqued.Args) (string, error) { return l.Key, nil }
	}
	if len(l.Args) > 0 {
		lock.Identifier = func(args resqued.Args) (string, error) {
			var some resqued.Args
			for _, i := range l.Args {
				arg := json.RawMessage("null") // as in Ruby, where a missing one is nil
				if i < len(args) {
					arg = args[i]
				}
				some = append(some, arg)
			}
			return wire.RubyJoin(some, style)
		}
	}
	return lock
}

// errNoDatabase means that a class keeps its lock in PostgreSQL, but no database is configured.
var errNoDatabase = errors.New("its lock is in PostgreSQL, and no database is given: set DATABASE_URL, or database_url_file")

// CheckDatabase returns an error if worker processes could not take class locks in PostgreSQL:
// no database is configured, or its URL is invalid.
func (p Program) CheckDatabase(c config.Config) error {
	classes := classesOf(c, p.Handlers)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		lock := classes[name].Lock
		if lock == nil || lock.Store != resqued.StorePostgres {
			continue
		}
		err := errNoDatabase
		if c.DatabaseURL != "" {
			if _, err = postgres.ParseURL(c.DatabaseURL); err != nil {
				err = fmt.Errorf("its lock is in PostgreSQL, and %w", err)
			}
		}
		if err != nil {
			return fmt.Errorf("class %q: %w", name, err)
		}
	}
	return nil
}

// RubyStyle returns how hashes are written in keys of class locks: like the Ruby version that
// job lock keys are configured for, by default an old one.
func RubyStyle(c config.Config) wire.RubyStyle {
	if c.JobLockKey == jobkey.Ruby34 {
		return wire.Ruby34
	}
	return wire.RubyUpTo33
}

func newClassLocks(c config.Config, set *handler.Set, s *store.Store, log *zap.Logger) (*classlock.Locks, error) {
	_, beat := leaseAndBeat(c)
	return classlock.New(classlock.Config{
		Store: s, URL: c.RedisURL,
		Open: func(url string) (classlock.Store, error) {
			return OpenStore(c.At(url), "resqued-locks")
		},
		OpenPostgres: func() (classlock.Store, error) {
			if c.DatabaseURL == "" {
				return nil, errNoDatabase
			}
			return postgres.Open(postgres.Config{URL: c.DatabaseURL, Namespace: c.Namespace, Lease: c.JobLockDuration})
		},
		Classes: set.Classes(), Class: set.Lookup, Style: RubyStyle(c), Grace: c.TermTimeout,
		TTL: c.JobLockDuration, BeatEvery: beat, Guard: handler.Guard, Boot: procfs.BootTime, Redact: c.Redact, Log: log,
	})
}
