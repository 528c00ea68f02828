package main

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

const (
	// pushPatience bounds a push; after that its outcome is ambiguous.
	pushPatience = 4 * time.Second
	// most is how many jobs may wait before the producers pause.
	most = 1500

	probeEvery   = 300 * time.Millisecond
	foreignEvery = 40 * time.Millisecond
	prober       = 9 // its number among the producers
)

// load starts all producers and foreign workers, until ctx ends.
func (c *chaos) load(ctx context.Context, wait *sync.WaitGroup) {
	for n := range producers {
		wait.Go(func() { c.produce(ctx, n) })
	}
	wait.Go(func() { c.probe(ctx) })
	wait.Go(func() { c.produceLong(ctx) })
	wait.Go(func() { c.foreignPops(ctx) })
}

// produce pushes jobs like a program with our client. It never repeats a push, whatever its
// outcome.
func (c *chaos) produce(ctx context.Context, n int) {
	pusher, err := client.New(client.Options{URL: "redis://" + c.pushProxy.Addr() + "/0", Namespace: namespace, UniqueQueues: []string{uniqueQueue}})
	if err != nil {
		c.complain("producer: %v", err)
		return
	}
	defer func() { _ = pusher.Close() }()
	raw := rawClient(c.pushProxy.Addr())
	defer func() { _ = raw.Close() }()
	p := newPlan(c.o.seed, n, int(c.o.slow.Seconds()*c.o.rate))
	p.runners = c.runners
	ticks := time.NewTicker(time.Duration(float64(time.Second) * producers / c.o.rate))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if c.full() {
			continue
		}
		j := p.next()
		push, ok := c.book(j, p.producer, p.sequence)
		if !ok {
			continue
		}
		if j.later > 0 {
			c.mu.Lock()
			push.Quiet = false // it must not start at once
			c.mu.Unlock()
		}
		var answer check.Answer
		if j.raw {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushPatience)
			answer = pushRaw(call, raw, j)
			cancel()
		} else {
			var result client.Result
			answer, result = enqueue(ctx, pusher, j)
			c.dueAt(push, result.Due)
		}
		c.settle(push, answer)
		for _, d := range j.again {
			if pause(ctx, d) {
				c.more(ctx, pusher, push, j)
			}
		}
	}
}

// enqueue pushes a job through the client.
func enqueue(ctx context.Context, pusher *client.Client, j job) (answer check.Answer, result client.Result) {
	// Not ctx: a push that is cut off at the end would be needlessly ambiguous.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushPatience)
	defer cancel()
	when := client.In(j.later)
	if j.later > 0 && j.later/time.Millisecond%2 == 0 { // each millisecond is equally likely
		when = client.At(time.Now().Add(j.later))
	}
	result, err := pusher.EnqueueRaw(call, []byte(j.payload), client.Queue(j.queue), when)
	return answerOf(err), result
}

func answerOf(err error) check.Answer {
	switch {
	case err == nil:
		return check.Acknowledged
	case client.NotEnqueued(err):
		return check.Refused
	}
	return check.Ambiguous
}

// dueAt notes when a delayed job is due.
func (c *chaos) dueAt(p *check.Push, due time.Time) {
	if due.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Due, p.DueAt = due.UnixMilli(), time.Duration(due.UnixNano())-c.history.Epoch
}

// more pushes the same payload again.
func (c *chaos) more(ctx context.Context, pusher *client.Client, p *check.Push, j job) {
	c.mu.Lock()
	n := len(p.More)
	p.More = append(p.More, check.Try{Answer: check.Ambiguous, Tried: procfs.BootTime(), Answered: 1<<63 - 1})
	p.Quiet = false // its runs look the same
	c.open[p.ID] = p
	c.mu.Unlock()
	answer, result := enqueue(ctx, pusher, j)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.More[n].Answer, p.More[n].Duplicate, p.More[n].Answered = answer, result.Status == client.StatusDuplicate, procfs.BootTime()
}

// pushRaw pushes a payload that our client would not push.
func pushRaw(ctx context.Context, raw *redis.Client, j job) check.Answer {
	err := raw.SAdd(ctx, key("queues"), j.queue).Err()
	if err != nil {
		return check.Refused // nothing was pushed yet
	}
	switch err := raw.RPush(ctx, key("queue:"+j.queue), j.payload).Err(); {
	case err == nil:
		return check.Acknowledged
	case client.NotEnqueued(err):
		return check.Refused
	}
	return check.Ambiguous
}

// rawClient returns a client that never repeats a command.
func rawClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, PoolSize: 4, ReadTimeout: pushPatience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (c *chaos) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backlog > most
}

// book notes a push before it is tried. It returns false at times when processes must live and
// threads be free.
func (c *chaos) book(j job, producer, sequence int) (*check.Push, bool) {
	now := procfs.BootTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	calm := now < c.quietTo
	if calm && j.unquiet {
		return nil, false
	}
	p := &check.Push{
		ID: j.id, Queue: j.queue, Expect: j.expect, Answer: check.Ambiguous, Tried: now, Producer: producer, Sequence: sequence,
		Unique: j.queue == uniqueQueue, Fails: j.fails,
		Digest: fmt.Sprintf("%s %x", j.queue, sha1.Sum([]byte(j.payload))),
		Quiet:  calm && now > c.quietAt+time.Second && now < c.quietTo-2*time.Second,
	}
	if j.retry {
		p.Attempts, p.Waits = retryAttempts, retryWaits
	}
	c.history.Pushes[j.id] = p
	c.open[j.id] = p
	return p, true
}

func (c *chaos) settle(p *check.Push, answer check.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Answer, p.Answered = answer, procfs.BootTime()
}

// probe pushes small jobs to the lowest queue to measure their wait.
func (c *chaos) probe(ctx context.Context) {
	raw := rawClient(c.sideProxy.Addr())
	defer func() { _ = raw.Close() }()
	for n := 1; pause(ctx, probeEvery); n++ {
		id := fmt.Sprintf("chaos-%d", n*10+prober)
		j := job{
			id: id, queue: lowQueue, expect: check.ExpectDone,
			payload: fmt.Sprintf(`{"class":"Work","id":%q,"args":[]}`, id),
		}
		p, _ := c.book(j, prober, n)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushPatience)
		answer := pushRaw(call, raw, j)
		cancel()
		c.settle(p, answer)
		c.mu.Lock()
		c.probes = append(c.probes, check.Probe{ID: id, Pushed: p.Answered, QuietUntilDone: answer == check.Acknowledged && p.Quiet})
		c.mu.Unlock()
	}
}

// nodePop takes a job as node-resque does: pop and record in one script.
var nodePop = redis.NewScript(`
local payload = redis.call('LPOP', KEYS[1])
if payload then redis.call('RPUSH', KEYS[2], string.match(payload, 'chaos%-%d+') or payload) end
return payload`)

// foreignPops takes jobs from the shared queue like other programs. A Ruby worker loses the job
// if the answer to its pop is lost; a node worker keeps a record.
func (c *chaos) foreignPops(ctx context.Context) {
	raw := rawClient(c.sideProxy.Addr())
	defer func() { _ = raw.Close() }()
	for n := 0; pause(ctx, foreignEvery); n++ {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushPatience)
		if n%2 == 0 {
			c.mu.Lock()
			c.popping++
			c.mu.Unlock()
			payload, err := raw.LPop(call, key("queue:"+sharedQueue)).Result()
			c.popped(payload, err)
		} else {
			_ = nodePop.Run(call, raw, []string{key("queue:" + sharedQueue), takenKey}).Err()
		}
		cancel()
	}
}

// popped notes the answer to a Ruby worker's pop.
func (c *chaos) popped(payload string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.popping--
	switch {
	case err == nil:
		if id := idPattern.FindString(payload); id != "" {
			c.history.Taken[id] = true
		}
	case !client.NotEnqueued(err) && !errors.Is(err, redis.Nil):
		// The answer is lost; the job may be lost too.
		c.popping++
		c.history.MaybeTaken++
	}
}
