package web

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
)

// beside are the goroutines of a server that outlive the request which has begun them. Server.Run
// ends them, and none begins after that.
type beside struct {
	// ctx ends with the server.
	ctx    context.Context
	cancel context.CancelFunc
	log    *slog.Logger

	mu      sync.Mutex
	stopped bool
	wait    sync.WaitGroup
}

func newBeside() *beside {
	ctx, cancel := context.WithCancel(context.Background())
	return &beside{ctx: ctx, cancel: cancel, log: slog.New(slog.DiscardHandler)}
}

// caught sets the error of a goroutine that has panicked; defer it, so that a bug there costs the server
// no more than one in a request.
func (b *beside) caught(err *error) {
	if v := recover(); v != nil {
		b.log.Error("something beside the requests panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		*err = errBug
	}
}

// run begins a goroutine, and reports whether it did: not once the server has ended. It is to recover
// from panics, see caught.
func (b *beside) run(do func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.wait.Go(func() { do(b.ctx) })
	return true
}

// stop ends all goroutines and waits for them.
func (b *beside) stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.cancel()
	b.wait.Wait()
}

// errStopping is the answer to what nothing would wait for.
func errStopping() error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "stopping", Message: "the server is stopping", Hint: "Nothing was changed. Try again when it has been started."}
}
