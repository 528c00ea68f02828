package program

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// refreshEvery is how often a command has its class lock refreshed at most. Requests that
// come in between are one, which is carried out when that time is over: no lock ends earlier
// than the last request would have it.
const refreshEvery = 250 * time.Millisecond

// Refresher carries out a command's requests to refresh its class lock, beside the reader of
// what the command reports: neither a slow Redis nor many requests hold that up.
type Refresher struct {
	log *zap.Logger
	// call begins the time of the job's class lock anew.
	call func() error

	wanted chan struct{} // holds one
	over   chan struct{}
	done   sync.WaitGroup
}

// NewRefresher returns one that calls call.
func NewRefresher(log *zap.Logger, call func() error) *Refresher {
	return &Refresher{log: log, call: call}
}

// Ask has the lock refreshed, soon. It does not wait for that, and is called by one goroutine.
func (r *Refresher) Ask() {
	if r.wanted == nil { // hardly any command asks
		r.wanted, r.over = make(chan struct{}, 1), make(chan struct{})
		r.done.Go(r.run)
	}
	select {
	case r.wanted <- struct{}{}:
	default: // one waits already, and will do for both
	}
}

// End carries out what is still wanted and returns. No more is asked.
func (r *Refresher) End() {
	if r.wanted == nil {
		return
	}
	close(r.wanted)
	close(r.over)
	r.done.Wait()
}

func (r *Refresher) run() {
	refused := false
	for range r.wanted {
		err := r.call()
		switch {
		case err == nil:
			r.log.Debug("class lock refreshed")
		case !refused: // one that asks often is told once why that is in vain
			refused = true
			r.log.Warn("a command asked to refresh its class lock in vain", zap.Error(err))
		}
		rest := time.NewTimer(refreshEvery)
		select {
		case <-rest.C:
		case <-r.over:
			rest.Stop()
		}
	}
}
