// Package pools replaces the package of Vitess from which goworker takes its connection pool,
// because that module is not available. It has the functions that goworker calls, and like the
// original it reuses the resources in the order in which they were returned.
package pools

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is returned when the pool is closed.
var ErrClosed = errors.New("resource pool is closed")

// Resource is an element of a pool.
type Resource interface{ Close() }

// Factory creates a resource.
type Factory func() (Resource, error)

// ResourcePool holds resources, which are created when they are first needed.
type ResourcePool struct {
	free    chan Resource // nil stands for one that has to be made
	factory Factory
}

// NewResourcePool returns a pool of at most capacity resources. Idle resources are kept.
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

// Put returns a resource to the pool.
func (p *ResourcePool) Put(r Resource) { p.free <- r }

// Close closes all resources. All of them must have been returned.
func (p *ResourcePool) Close() {
	close(p.free)
	for r := range p.free {
		if r != nil {
			r.Close()
		}
	}
}
