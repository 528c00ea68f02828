package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// failoverLosing promotes a replica without the last writes and removes the old server, so these
// writes are lost for all clients.
func failoverLosing(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
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
	note, err := c.promote(ctx, replica, between(r, 100*time.Millisecond, 800*time.Millisecond))
	if err != nil {
		return err
	}
	lasted(f, "away for %s%s", span(procfs.BootTime()-f.From), note)
	return c.allWorking(ctx, f, seen)
}

// promote cuts a replica off, lets the old server run for a while, and puts the replica in its
// place.
func (c *chaos) promote(ctx context.Context, replica *instance, behind time.Duration) (note string, err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := replica.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		replica.stop()
		return "", err
	}
	pause(ctx, behind)
	old := c.server.instance
	old.process.Kill()
	gone := procfs.BootTime()
	c.server.instance = *replica
	c.retarget(replica.socket)
	old.stop()
	return c.lost(ctx, "failover", gone)
}

// retarget directs all new connections to another server.
func (c *chaos) retarget(socket string) {
	for _, p := range append(c.proxies(), c.pushProxy, c.sideProxy) {
		p.SetTarget("unix", socket)
	}
}

// emptying reads everything at one instant and deletes it.
var emptying = redis.NewScript(gather + `
local taken = redis.call('LRANGE', KEYS[1], 0, -1)
failed = redis.call('LRANGE', p .. 'failed', 0, -1)
local stats = {redis.call('GET', p .. 'stat:processed') or '0', redis.call('GET', p .. 'stat:failed') or '0'}
redis.call('FLUSHALL')
return {places, failed, taken, stats}`)

// redisEmpty deletes everything, like a restart without a file. The jobs are lost; the daemons
// register again and continue. If a job was in hand, a second copy of it may start.
func redisEmpty(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	seen := c.marks()
	f.Effect, f.From = check.Disturbs|check.Fails, procfs.BootTime()
	again := r.IntN(2) == 0
	if again { // it must not forget that it was emptied
		if err := c.server.ctl().ConfigSet(ctx, "appendfsync", "always").Err(); err != nil {
			return err
		}
	}
	jobs, err := c.empty(ctx)
	if err != nil {
		return err
	}
	lasted(f, "%d jobs", len(jobs))
	if again {
		if _, err := c.bounce(ctx, "always", 0); err != nil {
			return err
		}
		f.To = procfs.BootTime()
		f.Note += ", and started again"
	}
	if err := c.allWorking(ctx, f, seen); err != nil {
		return err
	}
	return c.reborn(ctx, f.From, jobs)
}

// empty empties Redis and returns the jobs that were in it.
func (c *chaos) empty(ctx context.Context) (jobs []string, err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	from := procfs.BootTime()
	reply, err := emptying.Run(ctx, c.server.client, []string{takenKey}, namespace).Slice()
	lost := check.Span{From: from, To: procfs.BootTime()}
	if err != nil {
		return nil, err
	}
	if len(reply) != 4 {
		return nil, fmt.Errorf("the last look returned %d parts", len(reply))
	}
	c.server.epoch++
	var processed, failed int64
	if _, err := fmt.Sscan(list(reply[3])[0], &processed); err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(list(reply[3])[1], &failed); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Emptied = append(c.history.Emptied, lost)
	for _, id := range list(reply[0]) {
		c.history.Forgotten[id] = true
		if uuid, _, ok := strings.Cut(id, "."); ok {
			c.history.Forgotten[uuid] = true // all of the long job
		}
	}
	c.recordOutcomes(list(reply[1]), list(reply[2]), processed, failed)
	clear(c.open)
	return list(reply[0]), nil
}
