package redistest

import "go.uber.org/goleak"

// Probing is a goleak option for tests whose Redis goes away. After as many failed dials as its
// pool is large, go-redis dials once a second until one succeeds or the pool is closed. It
// notices the latter only after that second, for which goleak does not wait.
func Probing() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
