package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

// registerLong registers Long, which works numbers one after the other and notes each. It also
// notes the begin and end of each slice, so that the tests see overlaps.
func registerLong(h *resqued.Handlers, n *notes) {
	longjob.Register(h, "Long", func(ctx context.Context, r *longjob.Runner, a struct{ Units, Milliseconds int }) error {
		if err := r.WorkOnce(ctx, "once", func(context.Context) error { return n.mark("once", 0) }); err != nil {
			return err
		}
		numbers := make([]int, a.Units)
		for i := range numbers {
			numbers[i] = i + 1
		}
		return longjob.WorkEach(ctx, r, "each", numbers, func(ctx context.Context, i int) error {
			// Each unit notes its fence as it begins. A fence smaller than the previous one
			// belongs to a slice that was replaced.
			if err := n.unit(r, i); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Duration(a.Milliseconds) * time.Millisecond):
			}
			return longjob.SetState(r, "sum", i)
		})
	}, longjob.Options{Queue: "long", RequeueQueue: "later", Slice: time.Second, MaxDeaths: 50, RetryAfter: time.Second, TenantSlices: 1})
}

// registerTodo registers Todo, which works the elements of a list and removes them.
func registerTodo(h *resqued.Handlers, n *notes) {
	longjob.Register(h, "Todo", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		list, err := n.client.LRange(ctx, n.space+":test:todo", 0, -1).Result()
		if err != nil {
			return err
		}
		return longjob.WorkEach(ctx, r, "each", list, func(ctx context.Context, item string) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
			}
			pipe := n.client.TxPipeline()
			pipe.LRem(ctx, n.space+":test:todo", 1, item)
			pipe.HIncrBy(ctx, n.space+":test:todone", item, 1)
			_, err := pipe.Exec(ctx)
			return err
		})
	}, longjob.Options{Queue: "long", RequeueQueue: "later", Slice: 200 * time.Millisecond})
}

// registerDeaf registers DeafRun, whose only unit ignores its context. It notes that it begins,
// and some seconds later that it ends.
func registerDeaf(h *resqued.Handlers, n *notes) {
	longjob.Register(h, "DeafRun", func(ctx context.Context, r *longjob.Runner, milliseconds int) error {
		return r.WorkOnce(ctx, "unit", func(context.Context) error {
			key, ctx := n.space+":test:deaf", context.Background()
			if err := n.client.RPush(ctx, key, "begin "+r.UUID()).Err(); err != nil {
				return err
			}
			<-time.After(time.Duration(milliseconds) * time.Millisecond)
			return n.client.RPush(ctx, key, "end "+r.UUID()).Err()
		})
	}, longjob.Options{Queue: "long"})
}

// registerRecurring registers Shop, which runs for each of six shops every six seconds. Only
// some tests enable it, because the others would see its jobs.
func registerRecurring(h *resqued.Handlers, n *notes) {
	if os.Getenv(recurEnv) == "" {
		return
	}
	longjob.Register(h, "Shop", func(ctx context.Context, _ *longjob.Runner, shop string) error {
		return n.client.HIncrBy(ctx, n.space+":test:shops", shop, 1).Err()
	}, longjob.Options{Queue: "shops"})
	longjob.Recur(h, "Shop", longjob.Recurring{
		Interval: 6 * time.Second, Every: time.Second, Queue: "ticks",
		Each: longjob.Each(func(context.Context) ([]string, error) { return []string{"a", "b", "c", "d", "e", "f"}, nil }),
	})
}

// unit notes that a unit begins.
func (n *notes) unit(r *longjob.Runner, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	entry := strconv.Itoa(i) + " " + strconv.FormatInt(r.Fence(), 10)
	for {
		err := n.client.RPush(ctx, n.space+":test:units", entry).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
