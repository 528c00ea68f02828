package main

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

const (
	// tickKey holds the time of the harness's last write to it.
	tickKey   = namespace + ":chaos:tick"
	tickEvery = 3 * time.Millisecond
)

// writeTicks writes the time to Redis repeatedly: when Redis loses writes, the last one left
// shows since when.
func (c *chaos) writeTicks(ctx context.Context) {
	for client := c.server.witnessed(); pause(ctx, tickEvery); {
		at := procfs.BootTime()
		if client.Set(ctx, tickKey, int64(at), 0).Err() != nil {
			client = c.server.witnessed() // waits while the server is replaced
			continue
		}
		c.mu.Lock()
		c.ticked = at
		c.mu.Unlock()
	}
}

// lost notes what Redis has lost until an instant. The server must have been locked since then.
func (c *chaos) lost(ctx context.Context, kind string, until time.Duration) (note string, err error) {
	kept, err := c.server.client.Get(ctx, tickKey).Int64()
	if isNil(err) { // it was emptied and has kept no tick since
		c.mu.Lock()
		kept, err = int64(c.lastEmptied()), nil
		c.mu.Unlock()
	}
	if err != nil {
		return "", err
	}
	c.server.epoch++
	c.mu.Lock()
	defer c.mu.Unlock()
	l := check.Loss{Kind: kind, From: time.Duration(kept), To: until, Proven: time.Duration(kept) < c.ticked}
	c.history.Losses = append(c.history.Losses, l)
	if l.Proven {
		return ", redis lost " + span(l.To-l.From), nil
	}
	return "", nil
}

// lastEmptied returns when Redis was last emptied; zero if never.
func (c *chaos) lastEmptied() time.Duration {
	if n := len(c.history.Emptied); n > 0 {
		return c.history.Emptied[n-1].To
	}
	return 0
}
