package handler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// scarceFor is how long a job waits for scarce resources before it goes back to its queue
	// for others.
	scarceFor = 10 * time.Second
	// scarceFrom and scarceTo bound the pause between two tries.
	scarceFrom = 50 * time.Millisecond
	scarceTo   = time.Second
	// scarceEvery is how often that is logged.
	scarceEvery = 30 * time.Second
)

type scarcity struct {
	// patience replaces scarceFor, if it is not 0.
	patience time.Duration
	// told is when it was last logged (ns of the epoch).
	told atomic.Int64
}

// run runs the program for a job or a slice of a long one, and returns when its last process is
// gone. Without the resources to start it, the job waits: first in hand, so that no other is
// taken, then in its queue.
func (c *command) run(ctx context.Context, job *resqued.Job, s *slice) error {
	began, most := time.Now(), scarceFor
	if p := c.runner.scarcity.patience; p > 0 {
		most = p
	}
	for pause := scarceFrom; ; pause = min(2*pause, scarceTo) {
		err := c.try(ctx, job, s)
		if !program.Scarce(err) {
			return err
		}
		c.runner.sayScarce(job, err)
		next := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
		}
		if ctx.Err() != nil { // also if both have come at once
			if !errors.Is(context.Cause(ctx), resqued.ErrTimeout) {
				return err
			}
			most = 0 // a job that has not begun has not exceeded its limit
		}
		if time.Since(began) >= most {
			return fmt.Errorf("%w: %w", err, resqued.Requeue(requeueAfter))
		}
	}
}

func (r *runner) sayScarce(job *resqued.Job, err error) {
	now, told := time.Now().UnixNano(), r.scarcity.told.Load()
	if now-told < int64(scarceEvery) || !r.scarcity.told.CompareAndSwap(told, now) {
		return
	}
	r.log.Error("commands cannot be started; their jobs wait until they can",
		zap.String("class", wire.Printable(job.Class, shownName)), zap.Error(err))
}
