// Command longjob is a worker program with one long job, which sends an invoice to each
// customer of a shop, through every deploy.
//
//	go run ./examples/longjob work --queues '*'
//	go run ./examples/longjob start north
//	go run ./examples/longjob longjobs --watch
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
	"github.com/resqued/resqued/longjob"
)

func main() {
	h := resqued.New()
	longjob.Register(h, "Invoices", invoices, longjob.Options{Queue: "medium", RequeueQueue: "low"})
	if len(os.Args) == 3 && os.Args[1] == "start" {
		if err := start(h, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	daemon.Main(h)
}

// start enqueues a run, unless one for the same shop waits or runs.
func start(h *resqued.Handlers, shop string) error {
	c, err := longjob.NewClient(longjob.ClientOptions{URL: os.Getenv("REDIS_URL"), Namespace: os.Getenv("RESQUE_NAMESPACE"), Handlers: h})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	res, err := c.EnqueueUnique(context.Background(), "Invoices", shop)
	if err == nil {
		fmt.Println(res.Outcome, res.UUID)
	}
	return err
}

// invoices runs from its beginning in each slice and skips what is done.
func invoices(ctx context.Context, r *longjob.Runner, shop string) error {
	err := r.WorkOnce(ctx, "customers", func(context.Context) error {
		// Within a unit: the list is saved if, and only if, the unit is done.
		return longjob.SetState(r, "customers", customersOf(shop))
	})
	if err != nil {
		return err // also when the slice is over
	}
	customers, err := longjob.State(r, "customers", []string{})
	if err != nil {
		return err
	}
	err = longjob.WorkEach(ctx, r, "send", customers, func(ctx context.Context, customer string) error {
		sent, err := longjob.State(r, "sent", 0)
		if err != nil {
			return err
		}
		select { // sending takes a moment
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		r.Message("sent to " + customer)
		return longjob.SetState(r, "sent", sent+1)
	})
	if err != nil {
		return err
	}
	sent, err := longjob.State(r, "sent", 0)
	fmt.Printf("%s: %d invoices sent in %d slices\n", shop, sent, r.Slice())
	return err
}

func customersOf(shop string) []string {
	var customers []string
	for i := range 20 {
		customers = append(customers, fmt.Sprintf("%s-%d", shop, i+1))
	}
	return customers
}
