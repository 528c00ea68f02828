//go:build unix

package client_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
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

// Enqueue a job of the class Mail, with the arguments 42 and "hi".
func ExampleClient_Enqueue() {
	c, err := client.New(client.Options{URL: redisURL})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	type Mail struct {
		User    int
		Subject string
	}
	res, err := c.Enqueue(context.Background(), "Mail", Mail{42, "hi"}, client.Queue("mail"))
	switch {
	case client.NotEnqueued(err):
		log.Fatalf("nothing was pushed: %v", err)
	case err != nil:
		log.Fatalf("it may have been pushed: %v", err)
	}
	fmt.Println(res.Queue, res.Position, res.Status)
	// Output: mail 1 enqueued
}

// Many jobs go in one call. Each has a result of its own.
func ExampleClient_EnqueueMany() {
	c, err := client.New(client.Options{URL: redisURL, Namespace: "many"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	results, err := c.EnqueueMany(context.Background(), []client.EnqueueParams{
		{Class: "Mail", Args: []any{1, "hi"}, Queue: "mail"},
		{Class: "Mail", Args: []any{2, "hi"}, Queue: "mail", In: time.Hour},
		{Class: "Mail", Args: []any{3, "hi"}},
	})
	for _, res := range results {
		if res.Err == nil {
			fmt.Println(res.Status)
		} else {
			fmt.Println("not enqueued:", client.NotEnqueued(res.Err))
		}
	}
	fmt.Println(err != nil)
	// Output:
	// enqueued
	// delayed
	// not enqueued: true
	// true
}

// A job that is pushed in an hour.
func ExampleIn() {
	c, err := client.New(client.Options{URL: redisURL, Namespace: "later"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	res, err := c.Enqueue(context.Background(), "Remind", 42, client.Queue("mail"), client.In(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, time.Until(res.Due).Round(time.Hour))
	// Output: delayed 1h0m0s
}

// A unique queue holds an equal job once.
func ExampleOptions_uniqueQueues() {
	c, err := client.New(client.Options{URL: redisURL, Namespace: "unique", UniqueQueues: []string{"index"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	for range 2 {
		res, err := c.Enqueue(context.Background(), "Index", 7, client.Queue("index"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Status)
	}
	// Output:
	// enqueued
	// duplicate
}

// The handlers provide the queues of their classes. A hook sees every job.
func ExampleHooks() {
	h := resqued.New()
	resqued.Handle(h, "Mail", func(context.Context, int) error { return nil }, resqued.Queue("mail"))

	c, err := client.New(client.Options{URL: redisURL, Namespace: "hooks", Handlers: h, Hooks: []client.Hooks{{
		AfterEnqueue: func(ctx context.Context, job *client.Job, res client.Result) {
			fmt.Printf("%s%s to %s: %s\n", job.Class, job.Args, res.Queue, res.Status)
		},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Enqueue(context.Background(), "Mail", 42); err != nil {
		log.Fatal(err)
	}
	// Output: Mail[42] to mail: enqueued
}

// Remove the jobs with certain arguments that wait in a queue.
func ExampleClient_Dequeue() {
	c, err := client.New(client.Options{URL: redisURL, Namespace: "dequeue"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx := context.Background()
	for _, user := range []int{1, 2, 1} {
		if _, err := c.Enqueue(ctx, "Mail", user, client.Queue("mail")); err != nil {
			log.Fatal(err)
		}
	}
	removed, err := c.Dequeue(ctx, "mail", "Mail", 1)
	fmt.Println(removed, err)
	// Output: 2 <nil>
}

// Retry yesterday's failures that were caused by a missing mail server.
func ExampleClient_RetryFailed() {
	c, err := client.New(client.Options{URL: redisURL, Namespace: "failed"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	report, err := c.RetryFailed(context.Background(), client.Filter{
		Classes: []string{"Mail"}, Error: "connection refused", Since: time.Now().Add(-24 * time.Hour),
	})
	fmt.Println(report.Done, "of", report.Matched, err)
	// Output: 0 of 0 <nil>
}
