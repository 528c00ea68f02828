package master

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// repairedAgain is how long repeated repairs of a queue are not logged.
const repairedAgain = time.Minute

// leftoversEvery is how often some of all queues are checked for remains of formerly unique
// ones.
const leftoversEvery = 30 * time.Second

// repairer repairs the keys of unique queues and removes the remains of queues that are no
// longer unique. It has a goroutine besides the recoverer's, which Run starts and awaits,
// because Redis may be slow.
type repairer struct {
	store Store
	stats Stats
	log   *zap.Logger
	asks  chan store.UniqueQueues

	cursor uint64    // position in a large set of queues
	swept  time.Time // when queues that are not unique were last checked
	others uint64    // position among them
	logged map[string]time.Time
	failed bool // the last look failed
}

func newRepairer(d Deps) *repairer {
	return &repairer{
		store: d.Store, stats: d.Stats, log: d.Log.Named("repairer"), asks: make(chan store.UniqueQueues), logged: map[string]time.Time{},
	}
}

// ask requests a look at the queues, unless one is still under way.
func (r *repairer) ask(u store.UniqueQueues) {
	if u.Match == nil {
		return
	}
	select {
	case r.asks <- u:
	default:
	}
}

func (r *repairer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-r.asks:
			if err := r.look(ctx, u); err != nil && ctx.Err() == nil {
				if !r.failed {
					r.log.Warn("unique queues cannot be looked at", zap.Error(err))
				}
				r.failed = true
				continue
			}
			r.failed = false
		}
	}
}

func (r *repairer) look(ctx context.Context, u store.UniqueQueues) error {
	if err := r.sweep(ctx, u); err != nil || u.Leave {
		return err
	}
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	queues, next, err := r.store.OutOfStep(call, u, r.cursor)
	if err != nil {
		return err
	}
	r.cursor = next
	for queue, at := range r.logged {
		if time.Since(at) >= repairedAgain {
			delete(r.logged, queue)
		}
	}
	for _, queue := range queues {
		began := time.Now()
		report, err := r.store.RepairUneven(ctx, queue)
		if err != nil {
			return err
		}
		r.repaired(report)
		if !report.Changed() {
			continue
		}
		select { // let other clients of Redis work
		case <-ctx.Done():
		case <-time.After(min(20*time.Since(began), redisPatience)):
		}
	}
	return nil
}

func (r *repairer) repaired(report store.UniqueReport) {
	if report.Changed() && r.stats != nil {
		r.stats.Repaired(int(report.Duplicates))
	}
	_, told := r.logged[report.Queue]
	if report.Duplicates == 0 && (told || !report.Changed() && !report.TooLong) {
		return
	}
	r.logged[report.Queue] = time.Now()
	name := wire.Printable(report.Queue, 200)
	queue := zap.String("queue", name)
	if report.TooLong {
		r.log.Warn("the keys of a unique queue do not match, and it is too long to be repaired unasked; run: resqued locks repair "+name, queue, zap.Int64("jobs", report.Jobs))
		return
	}
	classes := make([]string, len(report.Dropped))
	for i, payload := range report.Dropped {
		envelope, _ := wire.Parse([]byte(payload), 0) // an unreadable payload has no class
		classes[i] = wire.Printable(envelope.Class, 200)
	}
	r.log.Warn("the keys of a unique queue did not match and were repaired; some program uses it that does not know them, or jobs came back to a long queue",
		queue, zap.Int64("dropped", report.Duplicates), zap.Strings("classes", classes))
}

// sweep removes the keys of queues that are no longer unique, some queues at a time. They affect
// no job and do not grow.
func (r *repairer) sweep(ctx context.Context, u store.UniqueQueues) error {
	if time.Since(r.swept) < leftoversEvery {
		return nil
	}
	r.swept = time.Now()
	call, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	queues, next, err := r.store.DropLeftovers(call, u.Match, r.others)
	r.others = next
	for _, queue := range queues {
		r.log.Info("removed the set and the times of an empty queue that unique_queues does not name", zap.String("queue", wire.Printable(queue, 200)))
	}
	return err
}
