package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/test/chaos/check"
)

// lasting keeps a fault of one daemon's network active for a while.
func (c *chaos) lasting(ctx context.Context, f *check.Fault, m *machine, d time.Duration, set func(p *faultproxy.Proxy)) error {
	seen := marks{m: m.seen()}
	f.From = procfs.BootTime()
	set(m.proxy)
	ok := pause(ctx, d)
	m.proxy.Heal()
	lasted(f, "for %s", span(d))
	if !ok {
		return context.Cause(ctx)
	}
	err := c.working(ctx, f, f.To, m)
	c.noticed(f, seen, silence...)
	return err
}

// slowTime is how long a network stays slow.
const slowTime = 1200 * time.Millisecond

// netSlow delays what is sent either way, by more and by less.
func netSlow(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	delay, jitter := between(r, 0, 150*time.Millisecond), between(r, 50*time.Millisecond, 300*time.Millisecond)
	err := c.lasting(ctx, f, c.hit(f, r), slowTime, func(p *faultproxy.Proxy) { p.SetDelay(delay, jitter) })
	f.Note += ", " + span(delay) + " to " + span(delay+jitter) + " each way"
	return err
}

// netDown resets existing connections and refuses new ones for less than a lease.
func netDown(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	f.Effect = check.Disturbs
	m := c.hit(f, r)
	return c.lasting(ctx, f, m, between(r, 300*time.Millisecond, m.lease/3), func(p *faultproxy.Proxy) {
		p.Refuse(true)
		p.Cut()
	})
}

// netHold stops the traffic on open connections. If that lasts longer than a lease it is a
// partition: others recover the jobs, and later reports of the daemon come too late.
func netHold(partition bool) injector {
	return func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
		f.Effect = check.Disturbs
		m := c.hitCommand(ctx, f, r)
		d := between(r, 300*time.Millisecond, 300*time.Millisecond+m.lease/4)
		if partition {
			f.Effect |= check.Fences | check.Fails
			d = m.lease + between(r, time.Second, time.Second+round)
		}
		return c.lasting(ctx, f, m, d, (*faultproxy.Proxy).Hold)
	}
}

// replyPatience is slightly longer than a daemon waits for a reply (IOTimeout of internal/rdb).
const replyPatience = 5500 * time.Millisecond

// burst is how many replies are lost in a row if that takes no time.
const burst = 12

// replyLost loses replies of the script that ends and takes jobs, or recovers them, after its
// execution. With mute the connection stays open and silent.
func replyLost(mute bool) injector {
	return func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
		m := c.hit(f, r)
		seen := marks{m: m.seen()}
		times := burst
		if mute {
			times, f.Effect = 1, check.Disturbs
		}
		moving := func(q faultproxy.Request) bool { return strings.HasPrefix(q.Key, key("resqued:inflight:")) }
		f.From = procfs.BootTime()
		for range times {
			select {
			case <-m.proxy.DropReply(faultproxy.Drop{Nth: 1 + r.IntN(3), Mute: mute, Match: moving}):
			case <-time.After(patience):
				return errors.New("no script to lose the reply of")
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		lasted(f, "of %d scripts", times)
		err := c.working(ctx, f, f.To, m)
		c.noticed(f, seen, silence...)
		if mute {
			f.To += max(m.lease, replyPatience) // the process notices only then
		}
		return err
	}
}

// pushReplyLost loses the replies to a producer's pushes.
func pushReplyLost(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	f.Daemon = "-"
	nth := 1 + r.IntN(12)
	select {
	case <-c.pushProxy.DropReply(faultproxy.Drop{Nth: nth}):
	case <-time.After(patience):
		return errors.New("no push to lose the reply of")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.From = procfs.BootTime()
	lasted(f, "of push %d", nth)
	f.Recovered = 0
	return nil
}
