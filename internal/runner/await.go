package runner

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Await waits until a process is ready. It fails if the first process started by this one cannot
// be used, or if none is ready within the boot timeout.
func (p *Pool) Await(ctx context.Context) error {
	late := time.NewTimer(p.o.BootTimeout + bootSlack)
	defer late.Stop()
	for {
		p.mu.Lock()
		changed, last, there := p.turn, p.last, p.there()
		p.mu.Unlock()
		switch {
		case there:
			return nil
		case last != nil && !p.forks.Load():
			return fmt.Errorf("runner %q cannot be started by %q: %w", p.o.Name, p.o.Argv, last)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			if last == nil {
				last = fmt.Errorf("it is not ready after %s (boot_timeout)", p.o.BootTimeout)
			}
			return fmt.Errorf("runner %q cannot be started by %q: %w", p.o.Name, p.o.Argv, last)
		}
	}
}

// bootSlack is how much longer Await waits, to get the process's own error.
const bootSlack = time.Second

func (p *Pool) there() bool {
	return slices.ContainsFunc(p.processes, func(q *process) bool { return q.state == ready })
}

// turned wakes all callers of Await. p.mu must be held.
func (p *Pool) turned() {
	close(p.turn)
	p.turn = make(chan struct{})
}
