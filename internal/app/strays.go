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
	// strayPause is the first pause of a slice that this process has given back before; it
	// doubles up to strayMost.
	strayPause = time.Second
	strayMost  = 30 * time.Second
	mostStrays = 1000
	// strayLog is the time between two log lines about one class.
	strayLog = time.Minute
)

// strays gives back slices of long jobs whose class this program lacks, for example during a
// deploy, or if different programs share a queue. A slice goes back at once, for another
// process. If this process gets it again, it pauses: without any program for the class, slices
// must not circulate.
type strays struct {
	log *zap.Logger

	mu   sync.Mutex
	seen map[string]int       // how often, by payload id
	told map[string]time.Time // by class
}

func newStrays(log *zap.Logger) *strays {
	return &strays{log: log, seen: map[string]int{}, told: map[string]time.Time{}}
}

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
	case err != nil: // unknown; nothing was done, and nothing must get lost
		return resqued.Requeue(strayPause), true
	}
	pause, tell := s.note(job.ID, job.Class)
	if tell {
		s.log.Warn("a slice of a long job goes back to its queue: this program does not know its class. One that does has to work the queue",
			zap.String("class", wire.Printable(job.Class, 200)), zap.String("queue", wire.Printable(job.Queue, 200)), zap.String("uuid", uuid))
	}
	return resqued.Requeue(pause), true
}

// note counts a slice, and returns how long it must wait, and whether to log.
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
