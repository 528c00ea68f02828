package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/test/chaos/check"
)

// silence are the messages of daemons when Redis does not answer or refuses.
var silence = []string{
	"redis does not answer", "redis refuses", "did not reach redis", "no beat has reached redis", "redis cannot be told", "orphaned jobs cannot",
}

func isNil(err error) bool { return errors.Is(err, redis.Nil) }

// allWorking waits until all daemons have started a job after a fault.
func (c *chaos) allWorking(ctx context.Context, f *check.Fault, seen marks) error {
	err := c.working(ctx, f, f.To, c.machines...)
	c.noticed(f, seen, silence...)
	return err
}

// redisKill kills the server. With "always" nothing is lost. With "everysec" a server writes up
// to two seconds late while its disk is busy, and these writes are lost.
func redisKill(fsync string, long bool) injector {
	return func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
		away := c.past(long, r)
		if err := c.server.ctl().ConfigSet(ctx, "appendfsync", fsync).Err(); err != nil {
			return err
		}
		seen := c.marks()
		f.Effect, f.From = check.Disturbs, procfs.BootTime()
		note, err := c.bounce(ctx, fsync, away+between(r, 0, time.Second))
		if err != nil {
			return err
		}
		lasted(f, "away for %s%s", span(procfs.BootTime()-f.From), note)
		return c.allWorking(ctx, f, seen)
	}
}

// bounce kills the server and starts it again.
func (c *chaos) bounce(ctx context.Context, fsync string, away time.Duration) (note string, err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.process.Kill()
	gone := procfs.BootTime()
	if !pause(ctx, away) {
		return "", context.Cause(ctx)
	}
	if err := c.server.restart(ctx); err != nil || fsync == "always" {
		return "", err
	}
	return c.lost(ctx, "kill", gone)
}

func debugSleep(long bool) injector {
	return func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
		d := c.past(long, r) + between(r, 300*time.Millisecond, 1500*time.Millisecond)
		seen := c.marks()
		f.Effect, f.From = check.Disturbs, procfs.BootTime()
		if err := c.server.ctl().Do(ctx, "DEBUG", "SLEEP", fmt.Sprintf("%.2f", d.Seconds())).Err(); err != nil {
			return err
		}
		lasted(f, "for %s", span(d))
		return c.allWorking(ctx, f, seen)
	}
}

// redisUneven cuts all daemons off for longer than a lease, and one of them a while longer. Its
// late beats are not a reason to consider its processes dead.
func redisUneven(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	late := c.hit(f, r)
	f.Daemon = "" // all are cut off
	d := c.someLease(r) + between(r, 300*time.Millisecond, time.Second)
	seen := c.marks()
	f.Effect, f.From = check.Disturbs, procfs.BootTime()
	for _, m := range c.machines {
		m.proxy.Refuse(true)
		m.proxy.Cut()
	}
	ok := pause(ctx, d)
	for _, m := range c.machines {
		if m != late {
			m.proxy.Heal()
		}
	}
	// Within the grace, with time left to dial: the library tries once a second.
	more := c.o.lease / 3 // of the shortest
	ok = ok && pause(ctx, more)
	late.proxy.Heal()
	lasted(f, "%s for %s, the others for %s", late.name, span(d+more), span(d))
	if !ok {
		return context.Cause(ctx)
	}
	return c.allWorking(ctx, f, seen)
}

func clientKill(ctx context.Context, c *chaos, f *check.Fault, _ *rand.Rand) error {
	seen := c.marks()
	f.From = procfs.BootTime()
	n, err := c.server.ctl().Do(ctx, "CLIENT", "KILL", "TYPE", "normal").Int()
	if err != nil {
		return err
	}
	lasted(f, "%d connections", n)
	return c.allWorking(ctx, f, seen)
}

func scriptFlush(ctx context.Context, c *chaos, f *check.Fault, _ *rand.Rand) error {
	seen := c.marks()
	f.From = procfs.BootTime()
	if err := c.server.ctl().ScriptFlush(ctx).Err(); err != nil {
		return err
	}
	lasted(f, "")
	return c.allWorking(ctx, f, seen)
}

// maxmemory makes Redis refuse pushes; queued jobs must still be worked.
func maxmemory(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	seen := c.marks()
	f.From = procfs.BootTime()
	if err := c.server.ctl().ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		return err
	}
	pause(ctx, between(r, 500*time.Millisecond, c.o.lease))
	err := c.server.ctl().ConfigSet(ctx, "maxmemory", "0").Err()
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if err != nil {
		return err
	}
	return c.allWorking(ctx, f, seen)
}

// failover promotes a replica without losses. Connections stay with the old server, which
// refuses writes; new ones go to the new one.
func failover(ctx context.Context, c *chaos, f *check.Fault, _ *rand.Rand) error {
	replica, err := startInstance(ctx)
	if err != nil {
		return err
	}
	if err := replica.follow(ctx, c.server); err != nil {
		replica.stop()
		return err
	}
	seen := c.marks()
	f.Effect, f.From = check.Disturbs, procfs.BootTime()
	old, err := c.server.replace(ctx, replica, func() {
		c.retarget(replica.socket)
	})
	if err != nil {
		replica.stop()
		return err
	}
	defer old.stop()
	lasted(f, "writes stood still for %s", span(procfs.BootTime()-f.From))
	return c.allWorking(ctx, f, seen)
}

// proxies returns the proxies of the daemons.
func (c *chaos) proxies() []*faultproxy.Proxy {
	var all []*faultproxy.Proxy
	for _, m := range c.daemons() {
		all = append(all, m.proxy)
	}
	return all
}

// without revokes rights of the daemons' user for a while.
func (c *chaos) without(ctx context.Context, f *check.Fault, d time.Duration, rights ...string) error {
	seen := c.marks()
	f.Effect, f.From = check.Disturbs, procfs.BootTime()
	set := func(rules ...string) error {
		args := []any{"ACL", "SETUSER", "resqued"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		return c.server.ctl().Do(ctx, args...).Err()
	}
	if err := set(rights...); err != nil {
		return err
	}
	pause(ctx, d)
	err := set(strings.Fields("reset " + aclRule)...)
	lasted(f, "%s for %s", strings.Join(rights, " "), span(d))
	if err != nil {
		return err
	}
	return c.allWorking(ctx, f, seen)
}

func withoutScripts(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	return c.without(ctx, f, between(r, 500*time.Millisecond, 2*time.Second), "-evalsha", "-eval")
}

// withoutCommand revokes a right that is needed only in the middle of a script.
func withoutCommand(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	commands := []string{"hset", "hdel", "lpop", "rpush", "set", "del", "incrby", "hget", "zadd", "lrem"}
	return c.without(ctx, f, between(r, 300*time.Millisecond, 1500*time.Millisecond), "-"+commands[r.IntN(len(commands))])
}
