//go:build unix

package longjob_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

// redisURL is the Redis of the examples, such as redis://127.0.0.1:6379.
var redisURL string

// withRedis has tests that give the examples next to them a Redis.
type withRedis struct{ *testing.M }

func (m withRedis) Run() int {
	server, err := miniredis.Run()
	if err != nil {
		log.Print(err)
		return 1
	}
	defer server.Close()
	redisURL = "redis://" + server.Addr()
	return m.M.Run()
}

func customersOf(shop string) []string { return []string{shop + "-1", shop + "-2"} }

func sendInvoice(ctx context.Context, customer string) error { return nil }

// A long job that sends an invoice to each customer of a shop. It runs from its beginning in
// each slice, and skips the customers who have theirs.
func ExampleRegister() {
	h := resqued.New()
	longjob.Register(h, "Invoices", func(ctx context.Context, r *longjob.Runner, shop string) error {
		// All slices work through the same list.
		customers, err := longjob.StateOnce(r, "customers", func() ([]string, error) {
			return customersOf(shop), nil
		})
		if err != nil {
			return err
		}
		err = longjob.WorkEach(ctx, r, "send", customers, func(ctx context.Context, customer string) error {
			r.Message("at " + customer)
			return sendInvoice(ctx, customer)
		})
		if err != nil {
			return err // also when the slice is over
		}
		return r.WorkOnce(ctx, "report", func(ctx context.Context) error {
			return sendInvoice(ctx, "accounting")
		})
	}, longjob.Options{Queue: "medium", RequeueQueue: "low", Slice: 30 * time.Second})
	fmt.Println(h.Classes()) // pass h to daemon.Main
	// Output: [Invoices]
}

// A list that comes in pages, for example from a web service.
func ExampleWorkPages() {
	type page struct {
		customers []string
		next      string
	}
	fetch := func(ctx context.Context, token string) (page, error) { return page{}, nil }

	h := resqued.New()
	longjob.Register(h, "Sync", func(ctx context.Context, r *longjob.Runner, shop string) error {
		return longjob.WorkPages(ctx, r, "pages", func(ctx context.Context, token string) (longjob.Page[string], error) {
			p, err := fetch(ctx, token)
			if err != nil {
				return longjob.Page[string]{}, err
			}
			for _, customer := range p.customers {
				if err := sendInvoice(ctx, customer); err != nil {
					return longjob.Page[string]{}, err
				}
			}
			return longjob.Page[string]{Next: p.next, Last: p.next == "", Done: int64(len(p.customers))}, nil
		})
	}, longjob.Options{Queue: "low"})
	// Output:
}

// A long job whose slices are performed by an external program.
func ExampleCommand() {
	h := resqued.New()
	h.Register(longjob.Command("Reindex", resqued.Command{
		Argv: []string{"/usr/local/bin/reindex"}, Env: []string{"INDEX=orders"},
	}, longjob.Options{Queue: "low", Grace: time.Minute}))
	fmt.Println(h.Classes())
	// Output: [Reindex]
}

// Each shop is checked once a day, evenly spread over the day.
func ExampleRecur() {
	shops := func(ctx context.Context) ([]string, error) { return []string{"north", "south"}, nil }

	h := resqued.New()
	longjob.Register(h, "CheckShop", func(ctx context.Context, r *longjob.Runner, shop string) error {
		return nil
	}, longjob.Options{Queue: "low"})
	longjob.Recur(h, "CheckShop", longjob.Recurring{Interval: 24 * time.Hour, Each: longjob.Each(shops)})
	// Output:
}

// Of runs with the same arguments one waits or runs at a time.
func ExampleClient_EnqueueUnique() {
	c, err := longjob.NewClient(longjob.ClientOptions{URL: redisURL})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx := context.Background()
	first, err := c.EnqueueUnique(ctx, "Invoices", "north", longjob.Queue("medium"))
	if err != nil {
		log.Fatal(err)
	}
	again, err := c.EnqueueUnique(ctx, "Invoices", "north", longjob.Queue("medium"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Outcome, again.Outcome, first.UUID == again.UUID)

	run, err := c.Get(ctx, first.UUID)
	fmt.Println(run.Class, run.Args, run.Status, err)
	// Output:
	// new existing true
	// Invoices ["north"] queued <nil>
}
