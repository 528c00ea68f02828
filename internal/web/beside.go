package web

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
)

// beside are a server's background goroutines, which outlive the requests that start them.
// Server.Run ends them, and none starts after that.
type beside struct {
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

// caught turns a goroutine's panic into an error. Defer it: a bug must not end the server.
func (b *beside) caught(err *error) {
	if v := recover(); v != nil {
		b.log.Error("something outside of the requests panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		*err = errBug
	}
}

// run starts a goroutine, unless the server has ended. do must recover from panics; see caught.
func (b *beside) run(do func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.wait.Go(func() { do(b.ctx) })
	return true
}

func (b *beside) stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.cancel()
	b.wait.Wait()
}

// errStopping is the answer to a request that needs a goroutine after stop.
func errStopping() error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "stopping", Message: "the server is stopping", Hint: "Nothing was changed. Try again when it has been started."}
}
