// Package pools stands in for the package of Vitess that goworker takes its
// connection pool from, whose module could not be had. It holds what
// goworker calls, and like the original hands out first what came back first.
package pools

import (
	"context"
	"errors"
	"time"
)

// ErrClosed: the pool is closed.
var ErrClosed = errors.New("resource pool is closed")

// Resource is what a pool holds.
type Resource interface{ Close() }

// Factory makes a resource.
type Factory func() (Resource, error)

// ResourcePool holds resources that are made when they are first needed.
type ResourcePool struct {
	free    chan Resource // nil stands for one that has to be made
	factory Factory
}

// NewResourcePool returns a pool of at most capacity resources. Idle ones are kept.
func NewResourcePool(factory Factory, capacity, _ int, _ time.Duration) *ResourcePool {
	p := &ResourcePool{free: make(chan Resource, capacity), factory: factory}
	for range capacity {
		p.free <- nil
	}
	return p
}

// Get waits for a resource.
func (p *ResourcePool) Get(ctx context.Context) (Resource, error) {
	select {
	case r, ok := <-p.free:
		switch {
		case !ok:
			return nil, ErrClosed
		case r != nil:
			return r, nil
		}
		r, err := p.factory()
		if err != nil {
			p.free <- nil
		}
		return r, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Put gives a resource back.
func (p *ResourcePool) Put(r Resource) { p.free <- r }

// Close closes what is in the pool; whatever is out has to be back.
func (p *ResourcePool) Close() {
	close(p.free)
	for r := range p.free {
		if r != nil {
			r.Close()
		}
	}
}
