package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// EnqueueParams describes one job of EnqueueMany.
type EnqueueParams struct {
	// Class and Args are as for Enqueue. Payload, if not nil, is pushed instead, as by
	// EnqueueRaw.
	Class   string
	Args    any
	Payload []byte
	// Queue is the queue of the job; empty = its class's.
	Queue string
	// In and At are as the options of the same name; both zero = now. If both are set, At takes
	// precedence.
	In time.Duration
	At time.Time
}

// EnqueueResult says what happened to one job of EnqueueMany. The Result is valid if Err is
// nil.
type EnqueueResult struct {
	Result
	Err error
}

// EnqueueMany pushes jobs, thousands in one call: it does not wait for one reply before it
// sends the next job. It returns one result for each job, in the order of jobs. A job that
// fails does not delay the others. NotEnqueued applies to the error of a result as to that of
// Enqueue. Jobs for the same queue keep their order, as do those that wait for the same time.
//
// The error of the call is not nil if any result has one. It contains their number and wraps
// the first.
func (c *Client) EnqueueMany(ctx context.Context, jobs []EnqueueParams) ([]EnqueueResult, error) {
	b := batch{client: c, results: make([]EnqueueResult, len(jobs)), jobs: make([]*Job, len(jobs)), payloads: make([][]byte, len(jobs))}
	var parts []*batch // by Redis
	for i := range jobs {
		home, err := (*Client)(nil), b.prepare(ctx, i, &jobs[i])
		if err == nil {
			home, err = c.home(b.jobs[i].Queue)
		}
		if b.results[i].Err = err; err != nil {
			continue
		}
		k := slices.IndexFunc(parts, func(part *batch) bool { return part.client == home })
		if k < 0 {
			k, parts = len(parts), append(parts, &batch{
				client: home, results: b.results, jobs: b.jobs, payloads: b.payloads, unique: map[string][]int{}, ways: map[string]way{},
			})
		}
		parts[k].sort(ctx, i)
	}
	for _, part := range parts {
		part.push(ctx)
	}
	failed, first := 0, error(nil)
	for i := range b.results {
		a := &b.results[i]
		if a.Err == nil {
			c.after(ctx, b.jobs[i], a.Result)
			continue
		}
		a.Result = Result{}
		if b.jobs[i] != nil {
			a.Err = fmt.Errorf("enqueue %q: %w", b.jobs[i].Class, a.Err)
		} else {
			a.Err = fmt.Errorf("enqueue: %w", a.Err)
		}
		if failed++; first == nil {
			first = a.Err
		}
	}
	if failed > 0 {
		return b.results, fmt.Errorf("%d of %d jobs: %w", failed, len(jobs), first)
	}
	return b.results, nil
}

type batch struct {
	client   *Client
	jobs     []*Job
	payloads [][]byte
	results  []EnqueueResult

	plain, later, loners []int
	unique               map[string][]int
	// ways has the way of the jobs that are not pushed yet, by queue.
	ways map[string]way
}

type way int

const (
	plain way = iota + 1
	unique
	later
	loner
)

func (b *batch) prepare(ctx context.Context, i int, n *EnqueueParams) (err error) {
	payload := n.Payload
	if payload == nil {
		if payload, err = wire.EncodePayload(n.Class, wire.ArgList(n.Args)); err != nil {
			return &refusedError{err}
		}
	}
	job, err := b.client.job(payload)
	if err != nil {
		return err
	}
	job.In, job.At = max(n.In, 0), n.At
	if n.Queue != "" {
		job.Queue = n.Queue
	}
	// A hook may change job.Payload; the bytes that were checked are pushed.
	b.jobs[i], b.payloads[i] = job, slices.Clone(payload)
	return b.client.before(ctx, job)
}

// surelyLater is how far ahead the time of a job must be to be in the future by any clock.
const surelyLater = time.Hour

// sort adds a job to those that take the same way. Earlier jobs of its queue that take another
// way are pushed first.
func (b *batch) sort(ctx context.Context, i int) {
	job := b.jobs[i]
	way := plain
	switch {
	case job.later():
		way = later
	case b.client.loner(job.Class) != nil:
		way = loner
	case b.client.unique(job.Queue):
		way = unique
	}
	// Only Redis knows whether the time of a job has come. If it has, the job is pushed with
	// others.
	if way != later || job.In <= 0 && time.Until(job.At) < surelyLater {
		if other := b.ways[job.Queue]; other != 0 && other != way {
			b.push(ctx)
		}
		b.ways[job.Queue] = way
	}
	switch way {
	case later:
		b.later = append(b.later, i)
	case loner:
		b.loners = append(b.loners, i)
	case unique:
		b.unique[job.Queue] = append(b.unique[job.Queue], i)
	default:
		b.plain = append(b.plain, i)
	}
}

// push pushes the jobs sorted so far.
func (b *batch) push(ctx context.Context) {
	b.pushPlain(ctx)
	b.pushUnique(ctx)
	b.delay(ctx)
	for _, i := range b.loners {
		b.results[i].Result, b.results[i].Err = b.client.put(ctx, b.jobs[i], b.payloads[i])
	}
	b.plain, b.later, b.loners = nil, nil, nil
	clear(b.unique)
	clear(b.ways)
}

func (b *batch) pushPlain(ctx context.Context) {
	queues, payloads := make([]string, len(b.plain)), make([][]byte, len(b.plain))
	for k, i := range b.plain {
		queues[k], payloads[k] = b.jobs[i].Queue, b.payloads[i]
	}
	for k, p := range b.client.store.PushMany(ctx, queues, payloads) {
		b.results[b.plain[k]] = EnqueueResult{Result: Result{Queue: queues[k], Position: p.Length, Status: StatusEnqueued}, Err: p.Err}
	}
}

func (b *batch) pushUnique(ctx context.Context) {
	for queue, all := range b.unique {
		for some := range slices.Chunk(all, 100) {
			var payloads [][]byte
			for _, i := range some {
				payloads = append(payloads, b.payloads[i])
			}
			reply, err := b.client.store.PushUnique(ctx, queue, b.client.opts.UniqueQueuesStrict, payloads...)
			position := reply.Length
			for k, i := range slices.Backward(some) {
				if b.results[i].Err = public(err); err != nil {
					continue
				}
				if b.results[i].Result = pushed(queue, position, reply.Pushed[k]); reply.Pushed[k] {
					position--
				}
			}
		}
	}
}

func (b *batch) delay(ctx context.Context) {
	jobs := make([]store.LaterJob, len(b.later))
	for k, i := range b.later {
		jobs[k] = b.client.laterJob(b.jobs[i], b.payloads[i])
	}
	for k, reply := range b.client.store.EnqueueLater(ctx, jobs) {
		i := b.later[k]
		b.results[i].Result, b.results[i].Err = delayed(b.jobs[i].Queue, reply)
	}
}
