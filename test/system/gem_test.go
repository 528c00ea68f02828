package system_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// gemTTL is how long a lock of resque-locket lasts; gemRefresh is how often it is set again.
// Both are in seconds.
const (
	gemTTL     = 35
	gemRefresh = 30
)

// gemWorker fakes a Ruby worker with resque-locket: it sends the same commands in the same order
// and has the same defects. It works Hold jobs.
type gemWorker struct {
	client *redis.Client
	space  string
	id     string
	queues []string
	// arrow separates keys and values in printed Ruby hashes: "=>" up to 3.3, " => " from 3.4
	// on.
	arrow string
	// refresh is the time between two SETEX of a held lock; 0 means gemRefresh.
	refresh time.Duration
	// whole makes it look for a lock and take it in one step. The gem uses two commands, and a
	// worker that takes the lock between them makes two jobs run. No other program can prevent
	// that, so tests that it would disturb set whole.
	whole bool
	// perform runs a job; nil sleeps for as long as the job's second argument says.
	perform func()

	trace *os.File
	jobs  atomic.Int64
	// bounced counts the jobs that were put back because they were locked.
	bounced atomic.Int64
}

// errBounced reports that a job was put back because its lock is held.
var errBounced = errors.New("locked")

func newGemWorker(t *testing.T, client *redis.Client, space, id string, queues ...string) *gemWorker {
	t.Helper()
	return &gemWorker{client: client, space: space, id: id, queues: queues, arrow: "=>", refresh: gemRefresh * time.Second}
}

// traceTo notes in a file of dir when the worker's jobs hold their locks.
func (g *gemWorker) traceTo(t *testing.T, dir string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "gem-"+g.id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	g.trace = file
}

func (g *gemWorker) key(name string) string { return g.space + ":" + name }

func (g *gemWorker) counters() string { return g.key("locket:queue_lock_counters") }

// run works jobs until ctx ends, and finishes the one in hand.
func (g *gemWorker) run(ctx context.Context) error {
	idle := time.NewTicker(20 * time.Millisecond)
	defer idle.Stop()
	for ctx.Err() == nil {
		worked, err := g.once(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if worked {
			continue
		}
		select {
		case <-ctx.Done():
		case <-idle.C:
		}
	}
	return nil
}

// once reserves one job and performs it, or puts it back.
func (g *gemWorker) once(ctx context.Context) (worked bool, err error) {
	if err := ignoreNil(g.client.Get(ctx, g.key("pause-all-workers")).Err()); err != nil {
		return false, err
	}
	queue, payload, err := g.reserve(ctx)
	if err != nil || queue == "" {
		return false, err
	}
	running, err := json.Marshal(map[string]any{
		"queue": queue, "run_at": time.Now().UTC().Format(time.RFC3339), "payload": json.RawMessage(payload),
	})
	if err != nil {
		return false, err
	}
	if err := g.client.Set(ctx, g.key("worker:"+g.id), running, 0).Err(); err != nil {
		return false, err
	}
	err = g.work(ctx, queue, payload)
	if errors.Is(err, errBounced) {
		g.bounced.Add(1)
		err = nil
	}
	if err != nil {
		return false, err
	}
	_, err = g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, g.key("worker:"+g.id))
		p.IncrBy(ctx, g.key("stat:processed"), 1)
		p.IncrBy(ctx, g.key("stat:processed:"+g.id), 1)
		return nil
	})
	return true, err
}

// reserve pops a job from the first queue that has one, except for queues in which every job is
// known to be locked.
func (g *gemWorker) reserve(ctx context.Context) (queue, payload string, err error) {
	counted, err := g.client.HKeys(ctx, g.counters()).Result()
	if err != nil {
		return "", "", err
	}
	full := map[string]bool{}
	for _, q := range counted {
		n, err := g.client.HGet(ctx, g.counters(), q).Int64()
		if ignoreNil(err) != nil {
			return "", "", err
		}
		length, err := g.client.LLen(ctx, g.key("queue:"+q)).Result()
		if err != nil {
			return "", "", err
		}
		full[q] = n >= length
	}
	for _, q := range g.queues {
		if full[q] {
			continue
		}
		payload, err := g.client.LPop(ctx, g.key("queue:"+q)).Result()
		switch {
		case err == nil:
			return q, payload, nil
		case !errors.Is(err, redis.Nil):
			return "", "", err
		}
	}
	return "", "", g.client.Del(ctx, g.counters()).Err()
}

// work performs a job under its lock.
func (g *gemWorker) work(ctx context.Context, queue, payload string) error {
	lock, duration, err := g.lockOf(payload)
	if err != nil {
		return err
	}
	got, err := g.take(ctx, lock)
	if err != nil {
		return err
	}
	if !got {
		_, err := g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.SAdd(ctx, g.key("queues"), queue)
			p.RPush(ctx, g.key("queue:"+queue), payload)
			return nil
		})
		return errors.Join(errBounced, err, g.client.HIncrBy(ctx, g.counters(), queue, 1).Err())
	}
	err = g.client.Del(ctx, g.counters()).Err()
	stop := g.keep(ctx, lock)
	id := "gem-" + g.id + "-" + strconv.FormatInt(g.jobs.Add(1), 10)
	g.note("begin", id, lock)
	if g.perform != nil {
		g.perform()
	} else {
		<-time.After(duration)
	}
	g.note("end", id, lock)
	stop()
	return errors.Join(err, g.client.Del(ctx, lock).Err(), g.client.Del(ctx, g.counters()).Err())
}

// take takes the lock unless it is held, whatever its value.
func (g *gemWorker) take(ctx context.Context, lock string) (bool, error) {
	if g.whole {
		return g.client.SetNX(ctx, lock, "", gemTTL*time.Second).Result()
	}
	err := g.client.Get(ctx, lock).Err()
	if !errors.Is(err, redis.Nil) {
		return false, err
	}
	return true, g.client.Do(ctx, "setex", lock, gemTTL, "").Err()
}

// keep sets the lock again and again until stop is called, without checking who holds it, as
// the gem's thread does.
func (g *gemWorker) keep(ctx context.Context, lock string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(g.refresh)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = g.client.Do(ctx, "setex", lock, gemTTL, "").Err()
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// lockOf returns the lock's key, with the payload of a Hold job printed as Ruby does, and how
// long the job runs.
func (g *gemWorker) lockOf(payload string) (lock string, duration time.Duration, err error) {
	var key, us int
	if _, err := fmt.Sscanf(payload, `{"class":"Hold","args":[%d,%d]}`, &key, &us); err != nil {
		return "", 0, fmt.Errorf("payload %s: %w", payload, err)
	}
	text := fmt.Sprintf(`{"class"%[1]s"Hold", "args"%[1]s[%[2]d, %[3]d]}`, g.arrow, key, us)
	return g.key("locket:job_locks:" + text), time.Duration(us) * time.Microsecond, nil
}

// note writes a line as the test program does, with fence 0 because the gem has none.
func (g *gemWorker) note(kind, id, lock string) {
	if g.trace == nil {
		return
	}
	_, _ = fmt.Fprintf(g.trace, "%s %d %d 0 %s %s\n", kind, procfs.BootTime().Nanoseconds(), os.Getpid(), id, lock)
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
