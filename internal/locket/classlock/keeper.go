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

// If a lock cannot be extended, its holder must stop after keepStop and is killed after keepEnd:
// parts of the lock's expiry, counted from when the last extension was sent. Job locks use the
// same parts.
const (
	keepStop = 20.0 / 35
	keepEnd  = 27.0 / 35
)

// stopGrace is how long a job may take to stop after it lost its lock.
func (c Config) stopGrace() time.Duration {
	return time.Duration(float64(c.TTL) * (keepEnd - keepStop))
}

// stopAfter is how long after the last extension a job is told to stop.
func (c Config) stopAfter() time.Duration { return time.Duration(float64(c.TTL) * keepStop) }

// keeper extends the locks held in one other Redis or in PostgreSQL, and detects lost ones.
type keeper struct {
	store Store
	cfg   Config
	// all: locks with a time limit also expire unless extended.
	all bool

	mu     sync.Mutex
	leases map[*lease]time.Duration // when each was last known to be held, by Boot
	failed bool                     // the last attempt failed
}

func newKeeper(s Store, cfg Config) *keeper {
	k := &keeper{store: s, cfg: cfg, leases: map[*lease]time.Duration{}}
	if s, ok := s.(interface{ KeepsAll() bool }); ok {
		k.all = s.KeepsAll()
	}
	return k
}

func (k *keeper) needs(l *lease) bool { return k.all || l.lock.Timeout == 0 }

// ends returns when, by Boot, the first of its locks expires unless extended: the process must
// have ended by then. 0 = there are none.
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

// add keeps a lock whose request was sent at sent, by Boot.
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
		// A lock released meanwhile is neither extended nor lost.
		if _, still := k.leases[l]; !still {
			continue
		}
		if k.leases[l] = sent; slices.Contains(lost, i) {
			l.lose(lostTo(l.shown(), ""), k.cfg.stopGrace())
		}
	}
}

// patience bounds an attempt to extend the locks: it must end before the next job has to be
// stopped, including jobs that take a lock meanwhile.
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

// silent stops the jobs whose locks are about to expire because they could not be extended.
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
