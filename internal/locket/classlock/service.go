package classlock

import (
	"context"
	"fmt"
	"reflect"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

type service struct {
	locks *Locks
	lease *lease // the job's; nil = none
}

// Locked implements jobctx.Locks.
func (s service) Locked(ctx context.Context, class string, args any) (bool, error) {
	_, state, err := s.locks.state(ctx, class, args)
	return state.Holder != "", err
}

// Enqueued implements jobctx.Locks.
func (s service) Enqueued(ctx context.Context, class string, args any) (bool, error) {
	_, state, err := s.locks.state(ctx, class, args)
	return state.Marked, err
}

// LonerLocked implements jobctx.Locks.
func (s service) LonerLocked(ctx context.Context, class string, args any) (bool, error) {
	lock, state, err := s.locks.state(ctx, class, args)
	return err == nil && (state.Holder != "" || lock.Loner && state.Marked), err
}

// RefreshLock implements jobctx.Locks.
func (s service) RefreshLock(ctx context.Context) error {
	if s.lease == nil {
		return resqued.ErrNotLocked
	}
	return s.lease.refresh(ctx)
}

// decodes reports whether pushed, decoded into the type of args, equals list. Another producer may
// have pushed optional zero arguments or written a number differently.
func decodes(pushed resqued.Args, args any, list resqued.Args) bool {
	if args == nil {
		return false
	}
	into := reflect.New(reflect.TypeOf(args))
	if pushed.Decode(into.Interface()) != nil {
		return false
	}
	decoded, err := wire.Args(into.Elem().Interface())
	return err == nil && decoded.String() == list.String()
}

// state reads the state of the lock for a class and these arguments.
func (c *Locks) state(ctx context.Context, name string, args any) (*resqued.ClassLock, store.LockState, error) {
	class, ok := c.cfg.Class(name)
	switch {
	case !ok:
		return nil, store.LockState{}, fmt.Errorf("class %q has no handler here, so its lock is not known", name)
	case class.Lock == nil:
		return nil, store.LockState{}, fmt.Errorf("class %q has no Lock", name)
	}
	list, err := wire.Args(args)
	if err != nil {
		return nil, store.LockState{}, err
	}
	if job := resqued.JobFrom(ctx); job != nil && job.Class == name && decodes(job.Args, args, list) {
		list = job.Args
	}
	key, err := wire.ClassLockKey(class, name, list, c.cfg.Style)
	if err != nil {
		return nil, store.LockState{}, err
	}
	state, err := c.storeOf(class.Lock).LockState(ctx, key, c.elsewhere(class.Lock))
	return class.Lock, state, err
}
