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
	// name is what the command line calls it, text what the table does.
	name, text string
	bound      time.Duration
	fire       injector
}

type injector func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error

// allKinds are all faults, by what they hit. The bounds are what docs/reliability.md
// promises; a second of each, or more, is for a busy machine.
func allKinds(lease time.Duration) []kind {
	return []kind{
		{"worker-kill", "worker process killed", 2 * time.Second, workerKill},
		{"worker-kill-taking", "worker process killed, new jobs on their way to it", 2 * time.Second, killAt(true)},
		{"worker-kill-ending", "worker process killed, ended jobs on their way to Redis", 2 * time.Second, killAt(false)},
		{"worker-stop", "worker process stopped", lease + 3*time.Second, workerStop},
		{"worker-term", "worker process told to end (TERM)", termTimeout + 3*time.Second, workerTerm},
		{"master-kill", "master killed, new one after 0–0.5 s", 8 * time.Second, masterKill},
		{"master-stop", "master stopped for longer than a lease", 2 * time.Second, masterStop},
		{"masters-stop", "every master stopped for longer than a lease", 2 * time.Second, mastersStop},
		{"master-kill-recovering", "worker process killed, and its master that recovers its jobs", 8 * time.Second, recoverKill},
		{"tree-kill", "daemon killed, new one at once", 4 * time.Second, treeKill},
		{"host-kill", "machine gone", lease + round + time.Second, hostKill},
		{"host-freeze", "machine frozen for longer than a lease", 5 * time.Second, hostFreeze},
		{"term", "TERM, started again", termTimeout + 4*time.Second, term},
		{"quit", "QUIT, started again", 8 * time.Second, quit},
		{"hup", "HUP", 10 * time.Second, reload},
		{"usr1", "USR1", termTimeout + 4*time.Second, usr1},
		{"usr2", "USR2, CONT after 0.3–1.5 s", 2 * time.Second, usr2},
		{"deploy", "HUP, then TERM or QUIT and a new daemon, one after the other", 8 * time.Second, deploy},
		{"all-away", "every daemon gone for more than a minute (QUIT)", 8 * time.Second, allAway},
		{"no-files", "no files, sockets, pipes for 0.3–1 s; worker process killed", 5 * time.Second, noFiles},

		{"redis-kill-everysec", "Redis killed for 0–1 s, `everysec`", 5 * time.Second, redisKill("everysec", 0)},
		{"redis-kill-always", "Redis killed for 0–1 s, `always`", 5 * time.Second, redisKill("always", 0)},
		{"redis-away", "Redis away for longer than a lease", 5 * time.Second, redisKill("everysec", lease+time.Second)},
		{"redis-sleep", "Redis hangs for 0.3–1.5 s", 5 * time.Second, debugSleep(0)},
		{"redis-stuck", "Redis hangs for longer than a lease", 5 * time.Second, debugSleep(lease + time.Second)},
		{"redis-uneven", "Redis comes back for one after the other", 5 * time.Second, redisUneven},
		{"client-pause", "CLIENT PAUSE for 0.3–2 s", 5 * time.Second, clientPause},
		{"client-kill", "every connection closed by Redis", 3 * time.Second, clientKill},
		{"script-flush", "SCRIPT FLUSH", 3 * time.Second, scriptFlush},
		{"maxmemory", "memory full", 5 * time.Second, maxmemory},
		{"failover", "failover in good order", 5 * time.Second, failover},
		{"failover-losing", "failover that loses the last writes", 5 * time.Second, failoverLosing},
		{"redis-empty", "Redis loses everything", 5 * time.Second, redisEmpty},
		{"acl-scripts", "right to run scripts taken for 0.5–2 s", 5 * time.Second, withoutScripts},
		{"acl-command", "right to a command of scripts taken for 0.3–1.5 s", 5 * time.Second, withoutCommand},

		{"net-delay", "20–150 ms of delay", 3 * time.Second, netDelay},
		{"net-jitter", "up to 50–300 ms of jitter", 3 * time.Second, netJitter},
		{"net-cut", "every connection reset", 3 * time.Second, netCut},
		{"net-down", "network down for 0.3–1 s", 5 * time.Second, netDown},
		{"net-half-open", "silence for 0.3–1 s", 5 * time.Second, netHold(300*time.Millisecond, lease/4)},
		{"net-partition", "silence for longer than a lease", 6 * time.Second, netHold(lease+time.Second, round)},
		{"reply-lost", "replies of scripts lost, connection reset", 4 * time.Second, replyLost(false)},
		{"reply-never", "reply of a script lost, silence", 4 * time.Second, replyLost(true)},
		{"push-reply-lost", "reply to a push lost", 0, pushReplyLost},
	}
}

// lengthy are the kinds that take a lease or more. The short profile has time for one
// of each.
var lengthy = []string{
	"master-stop", "masters-stop", "host-kill", "host-freeze", "redis-away", "redis-stuck", "redis-uneven", "net-partition", "deploy",
}

// rare are the kinds that take more than a minute: a long run has each once.
var rare = []string{"all-away"}

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
