package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/test/chaos/check"
)

// patience bounds the wait for a recovery; what takes longer has not recovered.
const patience = 30 * time.Second

// kind is a kind of fault: how it is injected, and how long the daemon may take to
// be over it. fire fills in the fault; its error says that it did not happen, or
// that nothing recovered.
type kind struct {
	name  string
	bound time.Duration
	fire  injector
}

type injector func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error

// allKinds are all faults, by what they hit. The bounds are what docs/reliability.md
// promises; a second of each, or more, is for a busy machine.
func allKinds(lease time.Duration) []kind {
	return []kind{
		{"worker-kill", 2 * time.Second, workerKill},
		{"worker-stop", lease + 3*time.Second, workerStop},
		{"worker-term", termTimeout + 3*time.Second, workerTerm},
		{"master-kill", 8 * time.Second, masterKill},
		{"master-stop", 2 * time.Second, masterStop},
		{"tree-kill", 4 * time.Second, treeKill},
		{"host-kill", lease + round + time.Second, hostKill},
		{"host-freeze", 5 * time.Second, hostFreeze},
		{"term", termTimeout + 4*time.Second, term},
		{"quit", 8 * time.Second, quit},
		{"hup", 10 * time.Second, reload},
		{"usr1", termTimeout + 4*time.Second, usr1},
		{"usr2", 2 * time.Second, usr2},

		{"redis-kill-everysec", 5 * time.Second, redisKill("everysec", 0)},
		{"redis-kill-always", 5 * time.Second, redisKill("always", 0)},
		{"redis-away", 5 * time.Second, redisKill("everysec", lease+time.Second)},
		{"redis-sleep", 5 * time.Second, debugSleep(0)},
		{"redis-stuck", 5 * time.Second, debugSleep(lease + time.Second)},
		{"redis-uneven", 5 * time.Second, redisUneven},
		{"client-pause", 5 * time.Second, clientPause},
		{"client-kill", 3 * time.Second, clientKill},
		{"script-flush", 3 * time.Second, scriptFlush},
		{"maxmemory", 5 * time.Second, maxmemory},
		{"failover", 5 * time.Second, failover},
		{"acl-scripts", 5 * time.Second, withoutScripts},
		{"acl-command", 5 * time.Second, withoutCommand},

		{"net-delay", 3 * time.Second, netDelay},
		{"net-jitter", 3 * time.Second, netJitter},
		{"net-cut", 3 * time.Second, netCut},
		{"net-down", 5 * time.Second, netDown},
		{"net-half-open", 5 * time.Second, netHold(0)},
		{"net-partition", 6 * time.Second, netHold(lease + round)},
		{"reply-lost", 4 * time.Second, replyLost(false)},
		{"reply-never", 4 * time.Second, replyLost(true)},
		{"push-reply-lost", 0, pushReplyLost},
	}
}

func kindNames() []string {
	kinds := allKinds(defaultLease)
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

var errNoWorker = errors.New("no worker process to hit")

// hit chooses the daemon that a fault hits.
func (c *chaos) hit(f *check.Fault, r *rand.Rand) *machine {
	m := c.machines[r.IntN(len(c.machines))]
	f.Daemon = m.name
	return m
}

// hitCommand is hit, but half of the time the daemon runs a command.
func (c *chaos) hitCommand(ctx context.Context, f *check.Fault, r *rand.Rand) *machine {
	m := c.hit(f, r)
	if r.IntN(2) == 0 {
		_ = within(ctx, 2*time.Second, "a command", func() bool {
			i := slices.IndexFunc(c.machines, func(m *machine) bool { return len(m.commands()) > 0 })
			if i >= 0 {
				m = c.machines[i]
			}
			return i >= 0
		})
	}
	f.Daemon = m.name
	return m
}

// marks are how many lines each daemon has said so far.
type marks map[*machine]int

func (c *chaos) marks() marks {
	seen := marks{}
	for _, m := range c.machines {
		seen[m] = m.seen()
	}
	return seen
}

// noticed looks for the first line since then that shows that somebody knows.
func (c *chaos) noticed(f *check.Fault, since marks, texts ...string) {
	for m, from := range since {
		if l, ok := m.said(from, texts...); ok && (f.Noticed < 0 || l.at-f.From < f.Noticed) {
			f.Noticed = max(l.at-f.From, 0)
		}
	}
}

// buried waits until nothing of some worker processes is left in Redis.
func (c *chaos) buried(ctx context.Context, f *check.Fault, from time.Duration, procs []string) error {
	err := within(ctx, patience, "the recovery of what the dead had in hand", func() bool {
		pipe := c.server.ctl().Pipeline()
		for _, name := range procs {
			pipe.Exists(ctx, key("resqued:inflight:"+name))
			pipe.ZCount(ctx, key("resqued:procs"), "-inf", "+inf")
			pipe.ZScore(ctx, key("resqued:procs"), name)
		}
		replies, err := pipe.Exec(ctx)
		if len(replies) != 3*len(procs) {
			return len(procs) == 0
		}
		_ = err // of a score that is not there
		for i := 0; i < len(replies); i += 3 {
			held, ok := replies[i].(interface{ Result() (int64, error) })
			if !ok {
				return false
			}
			n, err := held.Result()
			if err != nil || n > 0 || !isNil(replies[i+2].Err()) {
				return false
			}
		}
		return true
	})
	if err == nil {
		f.Recovered = max(proc.BootTime()-from, 0)
	}
	return err
}

// working waits until daemons have begun a job since an instant.
func (c *chaos) working(ctx context.Context, f *check.Fault, since time.Duration, machines ...*machine) error {
	var latest time.Duration
	err := within(ctx, patience, "jobs to begin again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		latest = 0
		for _, m := range machines {
			if c.started[m] <= since {
				return false
			}
			latest = max(latest, c.started[m])
		}
		return true
	})
	if err == nil {
		f.Recovered = max(latest-since, 0)
	}
	return err
}

// lasted notes that a fault's cause is gone.
func lasted(f *check.Fault, format string, args ...any) {
	f.To = proc.BootTime()
	f.Note = fmt.Sprintf(format, args...)
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}
