package classlock

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

// The holder of a lock that could not be extended has to stop after keepStop, and is ended
// after keepEnd: parts of the lock's expiry, counted from when the last extension was sent.
// Job locks have the same.
const (
	keepStop = 20.0 / 35
	keepEnd  = 27.0 / 35
)

// stopGrace is how long a job that has lost its lock may take to stop.
func (c Config) stopGrace() time.Duration {
	return time.Duration(float64(c.TTL) * (keepEnd - keepStop))
}

// stopAfter is how long after the last extension a job is told to stop.
func (c Config) stopAfter() time.Duration { return time.Duration(float64(c.TTL) * keepStop) }

// keeper extends the locks that are held in one other Redis, or in PostgreSQL, and finds
// out when one is lost.
type keeper struct {
	store Store
	cfg   Config
	// all: locks with a time limit expire as well unless they are extended.
	all bool

	mu     sync.Mutex
	leases map[*lease]time.Duration // when each was last known to be held, by Boot
	failed bool                     // the last try did not get through
}

func newKeeper(s Store, cfg Config) *keeper {
	k := &keeper{store: s, cfg: cfg, leases: map[*lease]time.Duration{}}
	if s, ok := s.(interface{ KeepsAll() bool }); ok {
		k.all = s.KeepsAll()
	}
	return k
}

// needs reports whether a lock expires unless it is extended.
func (k *keeper) needs(l *lease) bool { return k.all || l.lock.Timeout == 0 }

// ends returns when, by Boot, the first of its locks expires unless it is extended, so that
// the process must have ended by then; 0 = it has no locks.
func (k *keeper) ends() (ends time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l, kept := range k.leases {
		if end := kept + time.Duration(float64(k.cfg.TTL)*keepEnd); k.needs(l) && (ends == 0 || end < ends) {
			ends = end
		}
	}
	return ends
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
			k.cfg.Log.Warn("class locks that are kept elsewhere cannot be extended; trying again",
				zap.String("where", k.store.Where()), zap.Int("locks", len(locks)), zap.Error(err))
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range leases {
		// A lock that was released meanwhile is neither extended nor lost.
		if _, still := k.leases[l]; !still {
			continue
		}
		if k.leases[l] = sent; slices.Contains(lost, i) {
			l.lose(lostTo(l.shown(), ""), k.cfg.stopGrace())
		}
	}
}

// patience is how long a try to extend the locks may take: no longer than until the
// next job has to be stopped, also of those that take a lock meanwhile.
func (k *keeper) patience() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	stop := k.cfg.stopAfter()
	now, patience := k.cfg.Boot(), stop
	for l, kept := range k.leases {
		if left := kept + stop - now; k.needs(l) && left > 0 {
			patience = min(patience, left)
		}
	}
	return patience
}

// silent stops the jobs whose locks could not be extended for so long that they are
// about to expire.
func (k *keeper) silent() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, stop := k.cfg.Boot(), k.cfg.stopAfter()
	for l, kept := range k.leases {
		if silent := now - kept; k.needs(l) && silent >= stop {
			end := time.Duration(float64(k.cfg.TTL) * keepEnd)
			l.lose(fmt.Errorf("%w: %s, which has its class lock, has not answered for %s",
				resqued.ErrLockLost, k.store.Where(), silent.Round(time.Millisecond)), max(0, end-silent))
		}
	}
}
