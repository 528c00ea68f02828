package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// patience bounds the wait for a recovery. After that, a fault counts as not recovered.
const patience = 30 * time.Second

// kind is a kind of fault. fire injects it, waits for the recovery and fills in the fault. Its
// error reports that the fault could not be injected or that nothing recovered.
type kind struct {
	// name is its name on the command line, text its description in the table.
	name, text string
	// bound and leases limit the recovery time: bound plus leases times the hit daemon's lease,
	// or the longest one.
	bound  time.Duration
	leases float64
	fire   injector
}

type injector func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error

// allKinds returns all faults, by target. The bounds are those of docs/reliability.md plus a
// second or more for a busy machine.
func allKinds() []kind {
	return []kind{
		{"worker-kill", "worker process killed", 2 * time.Second, 0, workerKill},
		{"worker-kill-taking", "worker process killed, new jobs on their way to it", 2 * time.Second, 0, killAt(true)},
		{"worker-kill-ending", "worker process killed, ended jobs on their way to Redis", 2 * time.Second, 0, killAt(false)},
		{"worker-stop", "worker process stopped", 3 * time.Second, 1, workerStop},
		{"worker-term", "worker process told to end (TERM)", termTimeout + 3*time.Second, 0, workerTerm},
		{"master-kill", "master killed, new one after 0–0.5 s", 8 * time.Second, 0, masterKill},
		{"master-stop", "master stopped for longer than a lease", 2 * time.Second, 0, masterStop},
		{"masters-stop", "every master stopped for longer than a lease", 2 * time.Second, 0, mastersStop},
		{"master-kill-recovering", "worker process killed, and its master that recovers its jobs", 8 * time.Second, 0, recoverKill},
		{"tree-kill", "daemon killed, new one at once", 4 * time.Second, 0, treeKill},
		{"host-kill", "machine gone", round + time.Second, 1, hostKill},
		{"host-freeze", "machine frozen for longer than a lease", 5 * time.Second, 0, hostFreeze},
		{"term", "TERM, started again", termTimeout + 4*time.Second, 0, term},
		{"quit", "QUIT, started again", 8 * time.Second, 0, quit},
		{"hup", "HUP", 10 * time.Second, 0, reload},
		{"usr1", "USR1", termTimeout + 4*time.Second, 0, usr1},
		{"usr1-crash", "USR1, then a worker process killed", 3 * time.Second, 0, usr1Crash},
		{"usr2", "USR2, CONT after 0.3–1.5 s", 2 * time.Second, 0, usr2},
		{"deploy", "HUP, then TERM or QUIT and a new daemon, one after the other", 8 * time.Second, 0, deploy},
		{"all-away", "every daemon gone for more than a minute (QUIT)", 8 * time.Second, 0, allAway},
		{"no-files", "no files, sockets, pipes for 0.3–1 s; worker process killed", 5 * time.Second, 0, noFiles},
		{"log-blocked", "log not read; worker process killed, others beat, QUIT", 2 * time.Second, 0, logBlocked},
		{"exec-blocked", "program of commands held at exec for 1–4 s", 1500 * time.Millisecond, 2.0 / 7, execBlocked},
		{"runner-kill", "runner killed, with a job", 10 * time.Second, 0, runnerKill},
		{"runner-stop", "runner stopped, with a job that has a timeout", runnerTimeout + 3*time.Second, 0, runnerStop},
		{"template-kill", "template of runners killed", 5 * time.Second, 0, templateKill},
		{"container-restart", "container killed and started again", round + time.Second, 1, containerRestart},

		{"redis-kill-everysec", "Redis killed for 0–1 s, `everysec`", 5 * time.Second, 0, redisKill("everysec", false)},
		{"redis-kill-always", "Redis killed for 0–1 s, `always`", 5 * time.Second, 0, redisKill("always", false)},
		{"redis-away", "Redis away for longer than a lease", 5 * time.Second, 0, redisKill("everysec", true)},
		{"redis-sleep", "Redis hangs for 0.3–1.5 s", 5 * time.Second, 0, debugSleep(false)},
		{"redis-stuck", "Redis hangs for longer than a lease", 5 * time.Second, 0, debugSleep(true)},
		{"redis-uneven", "Redis comes back for one after the other", 5 * time.Second, 0, redisUneven},
		{"client-kill", "every connection closed by Redis", 3 * time.Second, 0, clientKill},
		{"script-flush", "SCRIPT FLUSH", 3 * time.Second, 0, scriptFlush},
		{"maxmemory", "memory full", 5 * time.Second, 0, maxmemory},
		{"failover", "failover in good order", 5 * time.Second, 0, failover},
		{"failover-losing", "failover that loses the last writes", 5 * time.Second, 0, failoverLosing},
		{"redis-empty", "Redis loses everything", 5 * time.Second, 0, redisEmpty},
		{"acl-scripts", "right to run scripts taken for 0.5–2 s", 5 * time.Second, 0, withoutScripts},
		{"acl-command", "right to a command of scripts taken for 0.3–1.5 s", 5 * time.Second, 0, withoutCommand},

		{"net-slow", "up to 450 ms of delay", 3 * time.Second, 0, netSlow},
		{"net-down", "network down for 0.3–1 s", 5 * time.Second, 0, netDown},
		{"net-half-open", "silence for 0.3–1 s", 5 * time.Second, 0, netHold(false)},
		{"net-partition", "silence for longer than a lease", 6 * time.Second, 0, netHold(true)},
		{"reply-lost", "replies of scripts lost, connection reset", 4 * time.Second, 0, replyLost(false)},
		// A daemon of one process may wait for that reply with all its threads.
		{"reply-never", "reply of a script lost, silence", replyPatience + 2*time.Second, 0, replyLost(true)},
		{"push-reply-lost", "reply to a push lost", 0, 0, pushReplyLost},
	}
}

// lengthy are the kinds that take a lease or longer. The short profile has time for each once.
var lengthy = []string{
	"master-stop", "masters-stop", "host-kill", "host-freeze", "redis-away", "redis-stuck", "redis-uneven", "net-partition", "deploy",
}

// rare are the kinds that take more than a minute. A long run injects each once.
var rare = []string{"all-away"}

func kindNames() []string { return namesOf(allKinds()) }

func namesOf(kinds []kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

var errNoWorker = errors.New("no worker process to hit")

// hit chooses the daemon for a fault.
func (c *chaos) hit(f *check.Fault, r *rand.Rand) *machine {
	m := c.machines[r.IntN(len(c.machines))]
	f.Daemon = m.name
	return m
}

// hitCommand is hit, but half of the time it waits until the daemon runs a command.
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

// someLease returns the lease of one of the daemons.
func (c *chaos) someLease(r *rand.Rand) time.Duration {
	return c.machines[r.IntN(len(c.machines))].lease
}

// past returns 0 or, if long is set, more than the lease of a random daemon.
func (c *chaos) past(long bool, r *rand.Rand) time.Duration {
	if !long {
		return 0
	}
	return c.someLease(r) + time.Second
}

// leaseOf returns the lease of a daemon, or the longest of all if the name is empty or unknown.
func (c *chaos) leaseOf(daemon string) (longest time.Duration) {
	for _, m := range c.daemons() {
		if m.name == daemon {
			return m.lease
		}
		longest = max(longest, m.lease)
	}
	return longest
}

// marks holds how many lines each daemon has logged.
type marks map[*machine]int

func (c *chaos) marks() marks {
	seen := marks{}
	for _, m := range c.daemons() {
		seen[m] = m.seen()
	}
	return seen
}

// noticed looks for the first line after since by which a daemon has noticed the fault.
func (c *chaos) noticed(f *check.Fault, since marks, texts ...string) {
	for m, from := range since {
		if l, ok := m.said(from, texts...); ok && (f.Noticed < 0 || l.at-f.From < f.Noticed) {
			f.Noticed = max(l.at-f.From, 0)
		}
	}
}

// awaitRecovered waits until no trace of the worker processes is left in Redis.
func (c *chaos) awaitRecovered(ctx context.Context, f *check.Fault, from time.Duration, procs []string) error {
	err := c.await(ctx, patience, "the recovery of what the dead had in hand", func() bool {
		return c.recoveredAll(ctx, procs)
	})
	if err == nil {
		f.Recovered = max(procfs.BootTime()-from, 0)
	}
	return err
}

// recoveredAll reports whether Redis has no trace of the worker processes.
func (c *chaos) recoveredAll(ctx context.Context, procs []string) bool {
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
	_ = err // of a missing score
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
}

// working waits until the daemons have started a job since an instant.
func (c *chaos) working(ctx context.Context, f *check.Fault, since time.Duration, machines ...*machine) error {
	var latest time.Duration
	err := c.await(ctx, patience, "jobs to begin again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		latest = 0
		for _, m := range machines {
			at := c.started[m]
			if at <= since {
				return false
			}
			latest = max(latest, at)
		}
		return true
	})
	if err == nil {
		f.Recovered = max(latest-since, 0)
	}
	return err
}

// lasted notes that a fault's cause has ended.
func lasted(f *check.Fault, format string, args ...any) {
	f.To = procfs.BootTime()
	f.Note = fmt.Sprintf(format, args...)
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}
