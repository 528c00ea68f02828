package master

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// healedAgain is how long the healing of a queue is not logged again.
const healedAgain = time.Minute

// leftoversEvery is how often a part of all queues is looked at for what is left of some that
// were unique once.
const leftoversEvery = 30 * time.Second

// healer brings unique queues back in step that no worker process looks at, such as
// one from which a stranger took the last job, and removes what is left of queues that are
// unique no more. It works beside the janitor, in a
// goroutine that Run starts and waits for, because a long queue takes its time.
type healer struct {
	store Store
	log   *zap.Logger
	asks  chan store.UniqueQueues

	cursor uint64    // where to go on in a large set of queues
	swept  time.Time // when queues were looked at that are not unique
	others uint64    // where to go on with them
	logged map[string]time.Time
	failed bool // since the last look that worked
}

func newHealer(d Deps) *healer {
	return &healer{
		store: d.Store, log: d.Log.Named("healer"), asks: make(chan store.UniqueQueues), logged: map[string]time.Time{},
	}
}

// ask has the queues looked at, unless the last look goes on still.
func (h *healer) ask(u store.UniqueQueues) {
	if u.Match == nil {
		return
	}
	select {
	case h.asks <- u:
	default:
	}
}

// run works until ctx ends.
func (h *healer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-h.asks:
			if err := h.look(ctx, u); err != nil && ctx.Err() == nil {
				if !h.failed {
					h.log.Warn("unique queues cannot be looked at", zap.Error(err))
				}
				h.failed = true
				continue
			}
			h.failed = false
		}
	}
}

func (h *healer) look(ctx context.Context, u store.UniqueQueues) error {
	if err := h.sweep(ctx, u); err != nil || u.Leave {
		return err
	}
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	queues, next, err := h.store.OutOfStep(call, u, h.cursor)
	if err != nil {
		return err
	}
	h.cursor = next
	for queue, at := range h.logged {
		if time.Since(at) >= healedAgain {
			delete(h.logged, queue)
		}
	}
	for _, queue := range queues {
		healed, err := h.store.HealUnique(ctx, queue)
		if err != nil {
			return err
		}
		if _, told := h.logged[queue]; healed && !told {
			h.logged[queue] = time.Now()
			h.log.Warn("the keys of a unique queue did not match and were repaired; some program pushes to it, or takes from it, that does not know them",
				zap.String("queue", wire.Printable(queue, 200)))
		}
	}
	return nil
}

// sweep removes the keys of queues that are unique no more, a part of the queues at a time. They
// are in no way of a job, and do not grow.
func (h *healer) sweep(ctx context.Context, u store.UniqueQueues) error {
	if time.Since(h.swept) < leftoversEvery {
		return nil
	}
	h.swept = time.Now()
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	queues, next, err := h.store.DropLeftovers(call, u.Match, h.others)
	h.others = next
	for _, queue := range queues {
		h.log.Info("removed the set and the times of an empty queue that unique_queues does not name", zap.String("queue", wire.Printable(queue, 200)))
	}
	return err
}
