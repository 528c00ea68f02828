package program

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// refreshEvery is the shortest time between two refreshes of a command's class lock. Requests in
// between are combined into one at the end of that time, so no lock ends earlier than requested.
const refreshEvery = 250 * time.Millisecond

// Refresher refreshes a command's class lock on request, apart from the reader of the command's
// output: neither a slow Redis nor many requests hold up that reader.
type Refresher struct {
	log  *zap.Logger
	call func() error

	wanted chan struct{} // capacity 1
	over   chan struct{}
	done   sync.WaitGroup
}

// NewRefresher returns a Refresher that calls call.
func NewRefresher(log *zap.Logger, call func() error) *Refresher {
	return &Refresher{log: log, call: call}
}

// Ask requests a refresh and does not wait for it. One goroutine calls it.
func (r *Refresher) Ask() {
	if r.wanted == nil { // few commands ask
		r.wanted, r.over = make(chan struct{}, 1), make(chan struct{})
		r.done.Go(r.run)
	}
	select {
	case r.wanted <- struct{}{}:
	default: // a waiting request covers both
	}
}

// End carries out a waiting request and returns. No Ask may follow.
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
		case !refused: // reported once per command
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
