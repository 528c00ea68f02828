package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// benchSpace follows the namespace; everything below it may be removed.
const benchSpace = ":resqued-bench:"

// BenchNamespace returns a namespace for a measurement, below a namespace whose rights and cluster slot
// it shares. run names the measurement, without colons; without run, the result contains all
// measurements.
func BenchNamespace(namespace, run string) string {
	return strings.TrimSuffix(namespace+benchSpace+run, ":")
}

// errNotBench prevents the removal of other keys.
var errNotBench = errors.New("is not a namespace of a measurement: nothing was removed")

// ServerLoad is a server's load; unknown values are 0.
type ServerLoad struct {
	Version string
	// CPU is the used processor time, Commands the number of commands run, including those in scripts.
	CPU      time.Duration
	Commands int64
	// PerSecond is the current number of commands per second.
	PerSecond int64
	// Keys is the number of keys in the database.
	Keys int64
	// Measured: CPU and Commands are known.
	Measured bool
}

// Load reads the server's load.
func (s *Store) Load(ctx context.Context) (l ServerLoad, err error) {
	text, err := s.db.Info(ctx, "server", "stats", "cpu")
	if err != nil {
		return l, fmt.Errorf("ask redis for its load: %w", err)
	}
	node, err := s.db.Node(ctx)
	if err != nil {
		return l, err
	}
	l.Version = rdb.InfoField(text, "redis_version")
	l.PerSecond, _ = strconv.ParseInt(rdb.InfoField(text, "instantaneous_ops_per_sec"), 10, 64)
	l.Keys, _ = node.DBSize(ctx).Result()
	var known error
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(rdb.InfoField(text, name), 64)
		known = errors.Join(known, err)
		l.CPU += time.Duration(seconds * float64(time.Second))
	}
	l.Commands, err = strconv.ParseInt(rdb.InfoField(text, "total_commands_processed"), 10, 64)
	l.Measured = errors.Join(known, err) == nil
	return l, nil
}

// RoundTrip returns the response time of a command that does nothing.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := s.db.Ping(ctx); err != nil {
		return 0, fmt.Errorf("redis at %s: %w", s.db.Where(), err)
	}
	return time.Since(began), nil
}

// RemoveBench removes all keys of the store's namespace, which must come from BenchNamespace and not be in
// use. It returns how many keys it removed.
func (s *Store) RemoveBench(ctx context.Context) (removed int, err error) {
	if !strings.Contains(s.db.Prefix, benchSpace) {
		return 0, fmt.Errorf("%q %w", s.db.Prefix, errNotBench)
	}
	node, err := s.db.Node(ctx)
	if err != nil {
		return 0, err
	}
	pattern := globEscape(s.db.Prefix) + "*"
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return removed, fmt.Errorf("look for the keys of %s: %w", s.db.Prefix, err)
		}
		if len(keys) > 0 {
			n, err := s.db.Write.Del(ctx, keys...).Result()
			if err != nil {
				return removed, fmt.Errorf("remove the keys of %s: %w", s.db.Prefix, err)
			}
			removed += int(n)
		}
		if cursor = next; cursor == 0 {
			return removed, nil
		}
	}
}

// LiveBenches returns how many processes hold a lease in measurements below the store's namespace:
// RemoveBench would remove their keys.
func (s *Store) LiveBenches(ctx context.Context) (n int, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	ms := strconv.FormatInt(now.UnixMilli(), 10)
	_, err = s.scan(ctx, strings.TrimPrefix(benchSpace, ":"), func(key string) bool {
		if strings.HasSuffix(key, ":"+keyProcs) {
			n += int(s.db.Read.ZCount(ctx, s.db.Key(key), ms, "+inf").Val())
		}
		return true
	})
	return n, err
}
