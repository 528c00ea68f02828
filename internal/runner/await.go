package runner

import (
	"context"
	"fmt"
	"time"
)

// Await waits until a process is ready. It fails with the reason when the first one that this
// process has started cannot be used, or when none is ready after the time to boot.
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

// bootSlack is how much longer Await waits, so that it has the reason of the process itself.
const bootSlack = time.Second

// there reports whether a process takes jobs.
func (p *Pool) there() bool {
	for _, q := range p.processes {
		if q.state == ready {
			return true
		}
	}
	return false
}

// turned wakes who awaits. With the lock held.
func (p *Pool) turned() {
	close(p.turn)
	p.turn = make(chan struct{})
}
