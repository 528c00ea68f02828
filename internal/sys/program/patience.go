package program

import (
	"context"
	"errors"
	"time"
)

// Patience is how long the processes may take to stop: killAfter, or less if the cause of ctx
// grants less, because then the worker process has to go.
func Patience(ctx context.Context, killAfter time.Duration) time.Duration {
	if told, ok := errors.AsType[interface {
		error
		Grace() time.Duration
	}](context.Cause(ctx)); ok {
		return min(killAfter, told.Grace()/2)
	}
	return killAfter
}
