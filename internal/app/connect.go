package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/statsd"
)

// CheckRedis returns an error if no client can be made for the URL of Redis or of a class lock's
// server. It does not connect.
func (p Program) CheckRedis(c config.Config) error {
	open := func(url string) error {
		s, err := OpenStore(c.At(url), "resqued-check")
		if err != nil {
			return err
		}
		return s.Close()
	}
	if err := open(c.RedisURL); err != nil {
		return err
	}
	for _, class := range slices.Sorted(maps.Keys(c.Handlers)) {
		if lock := c.Handlers[class].Lock; lock != nil && lock.Redis != "" {
			if err := open(lock.Redis); err != nil {
				return fmt.Errorf("class %q: lock.redis: %w", class, err)
			}
		}
	}
	return nil
}

// LocksInDatabase reports whether a class keeps its lock in PostgreSQL.
func (p Program) LocksInDatabase(c config.Config) bool {
	for _, class := range classesOf(c, p.Handlers) {
		if class.Lock != nil && class.Lock.Store == resqued.StorePostgres {
			return true
		}
	}
	return false
}

// classesOf returns the classes of the program and of the configuration, by name.
func classesOf(c config.Config, handlers *resqued.Handlers) map[string]resqued.Class {
	classes := map[string]resqued.Class{}
	for _, name := range handlers.Classes() {
		class, _ := handlers.Lookup(name)
		classes[name] = *class
	}
	maps.Copy(classes, Commands(c))
	return classes
}

// TryRedis makes a daemon's start-up checks of the server.
func TryRedis(ctx context.Context, c config.Config) []rdb.Step {
	s, err := OpenStore(c, "resqued-check")
	if err != nil {
		return []rdb.Step{{Name: "connection", Err: err}}
	}
	defer func() { _ = s.Close() }()
	return s.Steps(ctx, longstore.Probed())
}

// TryStatsd sends one datagram to statsd. It returns the address that the host resolves to.
func TryStatsd(ctx context.Context, c config.Config) (addr string, err error) {
	return statsd.Try(ctx, statsConfig(c))
}
