package workerproc

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// registrar registers the process in Redis. The goroutine of join owns at until join has
// returned. The rest is constant once join has begun, and any goroutine may call rejoin.
type registrar struct {
	*shared
	registration store.Registration
	at           time.Duration // the boot time at which the registration was sent
	waits        chan error    // why join waits; holds one, the oldest
}

func newRegistrar(s *shared) *registrar { return &registrar{shared: s, waits: make(chan error, 1)} }

// join waits for Redis as long as it takes, including for the right password or a permission. It
// reports why over waits, so that the master does not end a process that only waits.
func (r *registrar) join(ctx context.Context) error {
	told := ""
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, 2*time.Second) {
		r.at = procfs.BootTime()
		err := r.d.Store.Register(ctx, r.registration)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errStopped
		}
		if kind := store.TroubleOf(err).Kind(); kind != told {
			told = kind // the master says for how long, and the log when it is over
			r.log.Error("cannot register; trying again until that works", zap.Error(err))
		}
		select {
		case r.waits <- err:
		default:
		}
		sleep(ctx, wait)
	}
}

// rejoin registers again in a Redis that has lost its data. Jobs in hand continue; the next beat
// finds that their locks are gone.
func (r *registrar) rejoin(ctx context.Context) error {
	r.log.Error("redis has lost its data, this process and its locks among it; registering again")
	err := r.d.Store.Register(ctx, r.registration)
	if err != nil {
		r.log.Error("cannot register again; trying with the next beat", zap.Error(err))
	}
	return err
}

func (s *shared) newRegistration() store.Registration {
	cfg, id, life := s.cfg, s.id, s.life
	ids := make([]string, cfg.Threads)
	for i := range ids {
		ids[i] = s.workerID(i)
	}
	state := life.wanted
	if state == signals.Waiting {
		state = signals.Running // soon; the next beat may be later
	}
	r := store.Registration{
		Proc: id.proc, Workers: ids, Started: wire.FormatStart(life.started),
		Info: map[string]string{
			"host": cfg.Host, "pid": fmt.Sprint(cfg.PID), "slot": fmt.Sprint(id.slot),
			"threads": fmt.Sprint(cfg.Threads), "quota": fmt.Sprint(cfg.JobsPerFork), "master": id.master,
			"queues": strings.Join(cfg.Queues.Names(), ","), "version": cfg.Version,
			"busy": "0", "done": "0", "rss": strconv.FormatInt(rss(), 10),
			"started": wire.FormatISOUTC(life.started), "state": string(state),
		},
	}
	maps.Copy(r.Info, cfg.DeathPolicy.Info())
	maps.Copy(r.Info, cfg.Traces)
	if id.alone {
		r.Info[store.InfoAlone] = "1"
	}
	return r
}
