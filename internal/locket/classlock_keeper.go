package locket

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
)

// When the holder of a lock without a time limit, which nobody could extend, has to
// stop and when it is ended: as parts of the lock's expiry, counted from when the
// last extension was sent. They are those of job locks.
const (
	keepStop = 20.0 / 35
	keepEnd  = 27.0 / 35
)

// stopGrace is how long a job that has lost its lock may take to stop.
func (c ClassLocksConfig) stopGrace() time.Duration {
	return time.Duration(float64(c.TTL) * (keepEnd - keepStop))
}

// keeper extends the locks that are held in one other Redis, and finds out when one
// is lost.
type keeper struct {
	store LockStore
	cfg   ClassLocksConfig

	mu     sync.Mutex
	leases map[*lease]time.Duration // when each was last known to be held, by Boot
	failed bool                     // the last try did not get through
}

func newKeeper(s LockStore, cfg ClassLocksConfig) *keeper {
	return &keeper{store: s, cfg: cfg, leases: map[*lease]time.Duration{}}
}

// run keeps the locks until ctx ends.
func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := k.cfg.BeatEvery
		if k.failed {
			pause = min(pause, time.Duration(float64(k.cfg.TTL)*(keepEnd-keepStop)/8))
		}
		sleep(ctx, pause)
		k.silent()
		k.keep(ctx)
		k.silent()
	}
}

// add keeps a lock that was taken by a request sent at sent, by Boot.
func (k *keeper) add(l *lease, sent time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leases[l] = sent
}

func (k *keeper) remove(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, l)
}

// keep extends all locks.
func (k *keeper) keep(ctx context.Context) {
	k.mu.Lock()
	var leases []*lease
	var locks []store.HeldLock
	for l := range k.leases {
		leases, locks = append(leases, l), append(locks, l.lock)
	}
	k.mu.Unlock()
	sent := k.cfg.Boot()
	try, cancel := context.WithTimeout(ctx, k.patience())
	defer cancel()
	lost, err := k.store.KeepLocks(try, locks)
	k.failed = err != nil
	if err != nil {
		if ctx.Err() == nil {
			k.cfg.Log.Warn("class locks in another redis cannot be extended; trying again",
				zap.String("redis", k.store.Where()), zap.Int("locks", len(locks)), zap.Error(err))
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range leases {
		// One that was released meanwhile is nobody's any more.
		if _, still := k.leases[l]; !still {
			continue
		}
		if k.leases[l] = sent; slices.Contains(lost, i) {
			l.lose(lostTo(l.lock.Key, ""), k.cfg.stopGrace())
		}
	}
}

// patience is how long a try to extend the locks may take: no longer than until the
// next job has to be stopped, of those taken meanwhile, too.
func (k *keeper) patience() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	stop := time.Duration(float64(k.cfg.TTL) * keepStop)
	now, patience := k.cfg.Boot(), stop
	for l, kept := range k.leases {
		if left := kept + stop - now; l.lock.Timeout == 0 && left > 0 {
			patience = min(patience, left)
		}
	}
	return patience
}

// silent stops the jobs whose locks could not be extended for so long that they are
// about to expire. Those with a time limit do not need it.
func (k *keeper) silent() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, stop := k.cfg.Boot(), time.Duration(float64(k.cfg.TTL)*keepStop)
	for l, kept := range k.leases {
		if silent := now - kept; l.lock.Timeout == 0 && silent >= stop {
			end := time.Duration(float64(k.cfg.TTL) * keepEnd)
			l.lose(fmt.Errorf("%w: the redis of its class lock has not answered for %s",
				resqued.ErrLockLost, silent.Round(time.Millisecond)), max(0, end-silent))
		}
	}
}
