package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/chaos/check"
)

const (
	// longEvery is how often a long job is enqueued, unless longMost have not ended.
	longEvery = 700 * time.Millisecond
	longMost  = 3
	longSlice = 800 * time.Millisecond
	longUnit  = 90 // ms
	longer    = 7  // its number among the producers
)

// longUnits returns how many units a long job has: up to three slices.
func longUnits(id string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(id, "chaos-"))
	return 4 + n/10*7%21
}

// produceLong enqueues long jobs, none of them twice.
func (c *chaos) produceLong(ctx context.Context) {
	pusher, err := longjob.NewClient(longjob.ClientOptions{URL: "redis://" + c.pushProxy.Addr() + "/0", Namespace: namespace})
	if err != nil {
		c.complain("producer of long jobs: %v", err)
		return
	}
	defer func() { _ = pusher.Close() }()
	for n := 1; pause(ctx, longEvery); n++ {
		id := fmt.Sprintf("chaos-%d", n*10+longer)
		l := c.bookLong(id)
		if l == nil {
			n--
			continue
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushPatience)
		result, err := pusher.EnqueueUnique(call, "Long", id, longjob.Queue(longQueue), longjob.RequeueQueue(longQueue))
		cancel()
		if err == nil && result.Outcome != longjob.OutcomeNew {
			c.complain("long job %s, which was never enqueued, is %s", id, result.Outcome)
		}
		c.mu.Lock()
		l.Answer, l.UUID, l.Answered = answerOf(err), result.UUID, procfs.BootTime()
		c.mu.Unlock()
	}
}

// bookLong notes a long job before it is enqueued. It returns nil if there are enough.
func (c *chaos) bookLong(id string) *check.Long {
	now := procfs.BootTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := 0
	for _, l := range c.history.Longs {
		// A run without news for long is gone or never existed.
		if l.Tried > now-30*time.Second && l.Answer != check.Refused && !c.history.Completed(l.ID, now) {
			busy++
		}
	}
	if busy >= longMost {
		return nil
	}
	l := &check.Long{ID: id, Units: longUnits(id), Tried: now, Answered: 1<<63 - 1}
	c.history.Longs[id] = l
	return l
}

// longsNow reads the state of the long jobs from Redis, and returns what is left of them.
func (c *chaos) longsNow(ctx context.Context) (left []string) {
	ctl := c.server.ctl()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.history.Longs {
		if l.UUID == "" {
			continue
		}
		l.Status = ctl.HGet(ctx, key("resqued:longjob:run:"+l.UUID), "status").Val()
		if forgotten := ctl.ZScore(ctx, key("resqued:longjob:ended"), l.UUID).Val(); l.Status != "" && forgotten == 0 {
			left = append(left, fmt.Sprintf("long job %s, %s, for ever", l.ID, l.Status))
		}
	}
	return left
}

// slicePattern finds the id of a slice in a payload.
var slicePattern = regexp.MustCompile(`"id":"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+)"`)
