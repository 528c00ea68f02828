package redistest

import "go.uber.org/goleak"

// Probing is for the goleak of tests whose Redis goes away. When as many dials have failed as its pool
// is large, go-redis dials once a second until one succeeds or the pool is closed; it notices the end
// only after that second, which goleak does not wait for.
func Probing() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
