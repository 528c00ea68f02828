package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// strayPause is how long a slice waits that was given back before, by this process; twice as
	// long each time, strayMost at most.
	strayPause = time.Second
	strayMost  = 30 * time.Second
	// mostStrays is how many slices are remembered.
	mostStrays = 1000
	// strayLog is the time between two lines of the log about one class.
	strayLog = time.Minute
)

// strays gives slices of long jobs back whose class this program does not have: during a deploy,
// say, or where programs with different classes share a queue. A slice goes back at once, for another
// process to take it, and only if this one gets it again after a pause: where no program has the
// class it must not go round in circles.
type strays struct {
	log *zap.Logger

	mu   sync.Mutex
	seen map[string]int       // by the id of the payload: how often
	told map[string]time.Time // by class
}

func newStrays(log *zap.Logger) *strays {
	return &strays{log: log, seen: map[string]int{}, told: map[string]time.Time{}}
}

// giveBack is the Stray of package handler.
func (s *strays) giveBack(ctx context.Context, job *resqued.Job) (err error, is bool) {
	uuid, number := longstore.NamesSlice(job.ID)
	var arg string
	if number == 0 || len(job.Args) != 1 || job.Args.Get(0, &arg) != nil || arg != uuid {
		return nil, false
	}
	long := longstore.FromContext(ctx)
	if long == nil {
		return nil, false
	}
	run := jobctx.RunOf(job)
	slice := longstore.Slice{UUID: uuid, Number: number, Class: job.Class, Run: store.RunName{Proc: run.Proc, Token: run.Token}}
	switch err := long.Refuse(ctx, slice); {
	case errors.Is(err, longstore.ErrGone):
		return nil, false
	case errors.Is(err, longstore.ErrOver), errors.Is(err, longstore.ErrStale), errors.Is(err, longstore.ErrBusy):
		return fmt.Errorf("%w: %w", resqued.Discard, err), true
	case err != nil: // it is not known; nothing has been done, and nothing must get lost
		return resqued.Requeue(strayPause), true
	}
	pause, tell := s.note(job.ID, job.Class)
	if tell {
		s.log.Warn("a slice of a long job goes back to its queue: this program does not know its class. One that does has to work the queue",
			zap.String("class", wire.Printable(job.Class, 200)), zap.String("queue", wire.Printable(job.Queue, 200)), zap.String("uuid", uuid))
	}
	return resqued.Requeue(pause), true
}

// note counts a slice, and returns how long it is to wait, and whether the log is to say so.
func (s *strays) note(id, class string) (pause time.Duration, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= mostStrays {
		clear(s.seen)
	}
	if n := s.seen[id]; n > 0 {
		pause = min(strayPause<<min(n-1, 10), strayMost)
	}
	s.seen[id]++
	if tell = time.Since(s.told[class]) >= strayLog; tell {
		if len(s.told) >= mostStrays {
			clear(s.told)
		}
		s.told[class] = time.Now()
	}
	return pause, tell
}
