package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/chaos/check"
)

// attendEvery is how often leases are read: more often than they are extended.
const attendEvery = 250 * time.Millisecond

// maxSilence is how long an overloaded machine explains missing beats of a worker process.
const maxSilence = 3 * time.Second

// attendance reads at one instant the leases and the ids of living worker processes that are not
// registered.
var attendance = redis.NewScript(`
local p, unlisted = ARGV[1] .. ':', {}
local time, procs = redis.call('TIME'), redis.call('ZRANGE', ARGV[1] .. ':resqued:procs', 0, -1, 'WITHSCORES')
for i = 1, #procs, 2 do
  local ids = tonumber(procs[i + 1]) > 0 and redis.call('HGET', p .. 'resqued:proc:' .. procs[i], 'workers')
  for id in string.gmatch(ids or '', '[^\n]+') do
    if redis.call('SISMEMBER', p .. 'workers', id) == 0 then unlisted[#unlisted + 1] = id end
  end
end
return {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), procs, unlisted}`)

func (c *chaos) watchLeases(ctx context.Context) {
	for pause(ctx, attendEvery) {
		_ = c.lookAtLeases(ctx) // Redis is away at times
	}
}

func (c *chaos) lookAtLeases(ctx context.Context) error {
	c.server.mu.RLock()
	epoch := c.server.epoch
	reply, err := attendance.Run(ctx, c.server.client, nil, namespace).Slice()
	c.server.mu.RUnlock()
	if err != nil {
		return err
	}
	if len(reply) != 3 {
		return fmt.Errorf("a look at the leases returned %d parts", len(reply))
	}
	s := check.LeaseLook{Until: map[string]int64{}, Unlisted: list(reply[2]), Epoch: epoch}
	if _, err := fmt.Sscan(fmt.Sprint(reply[0]), &s.Now); err != nil {
		return err
	}
	procs := list(reply[1])
	for i := 0; i+1 < len(procs); i += 2 {
		until, err := strconv.ParseFloat(procs[i+1], 64)
		if err != nil {
			return err
		}
		s.Until[procs[i]] = int64(until)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Concurrent looks may come out of order.
	if s.Now >= c.lookedAt {
		c.lookedAt = s.Now
		c.leases.Look(s, func(worker string) time.Duration {
			if m := c.machineOf(worker); m != nil {
				return m.lease
			}
			return 0
		})
	}
	return nil
}

// beating waits until each current worker process of the daemons that is not leaving has
// extended its lease since an instant.
func (c *chaos) beating(ctx context.Context, f *check.Fault, since time.Duration, machines ...*machine) error {
	type one struct {
		process
		lease time.Duration
	}
	var waiting []one
	began := f.From
	for _, m := range machines {
		for _, w := range m.workers() {
			waiting = append(waiting, one{w, m.lease})
		}
	}
	silent := ""
	err := c.await(ctx, patience, "a heartbeat of each worker process", func() bool {
		for len(waiting) > 0 {
			w := waiting[0]
			until, err := c.server.ctl().ZScore(ctx, key("resqued:procs"), w.proc).Result()
			beat := time.Duration(until)*time.Millisecond - c.history.Epoch - w.lease
			if err != nil && !isNil(err) || err == nil && beat < since && proctest.Alive(w.PID) {
				silent = w.proc
				return false
			}
			waiting = waiting[1:]
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: %s is silent", err, silent)
	}
	f.Recovered = max(f.Recovered, procfs.BootTime()-since)
	return c.unheard(began, machines...)
}

// unheard returns an error that names the daemons' worker processes that were ended since an
// instant for missing beats although the machine was not overloaded.
func (c *chaos) unheard(since time.Duration, machines ...*machine) error {
	for worker, at := range c.said(silentLine) {
		c.mu.Lock()
		waited := c.history.Waited(at-maxSilence, at) > 0
		c.mu.Unlock()
		if at >= since && !waited && slices.Contains(machines, c.machineOf(worker)) {
			return fmt.Errorf("%s was ended, since it gave no sign of life", worker)
		}
	}
	return nil
}
