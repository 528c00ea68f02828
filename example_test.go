package resqued_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

// perform runs a class as the daemon does, with arguments given as JSON.
func perform(h *resqued.Handlers, class string, args ...string) error {
	job := &resqued.Job{Class: class}
	for _, arg := range args {
		job.Args = append(job.Args, json.RawMessage(arg))
	}
	c, _ := h.Lookup(class)
	return c.Handler(jobctx.WithJob(context.Background(), job), job)
}

// The fields of a struct take the arguments of the job in order.
func ExampleHandle() {
	type Mail struct {
		User    int64
		Subject string
		Urgent  bool `resqued:"optional"`
	}
	h := resqued.New()
	resqued.Handle(h, "Mail", func(ctx context.Context, m Mail) error {
		fmt.Printf("to %d: %s\n", m.User, m.Subject)
		return nil
	}, resqued.Queue("mail"), resqued.Timeout(time.Minute))

	fmt.Println(perform(h, "Mail", `42`, `"hi"`))
	fmt.Println(perform(h, "Mail", `"bob"`, `"hi"`))
	fmt.Println(perform(h, "Mail", `42`))
	// Output:
	// to 42: hi
	// <nil>
	// arguments of Mail: args[0] (User): "bob" does not fit into int64
	// arguments of Mail: got 1 argument, takes 2 to 3 (User, Subject, Urgent)
}

// Any type but a struct takes exactly one argument.
func ExampleHandle_oneArgument() {
	h := resqued.New()
	resqued.Handle(h, "Greet", func(ctx context.Context, name string) error {
		fmt.Println("hello", name)
		return nil
	})
	_ = perform(h, "Greet", `"world"`)
	// Output: hello world
}

// Raw arguments keep every byte: no digit is lost and {} stays {}.
func ExampleHandlers_HandleArgs() {
	h := resqued.New()
	h.HandleArgs("Legacy", func(ctx context.Context, args resqued.Args) error {
		var id int64
		if err := args.Get(0, &id); err != nil {
			return err
		}
		fmt.Println(id, args)
		return nil
	})
	_ = perform(h, "Legacy", `12345678901234567`, `{}`)
	// Output: 12345678901234567 [12345678901234567,{}]
}

// Middleware surrounds every job; what is added first is outermost.
func ExampleHandlers_Use() {
	h := resqued.New()
	h.Use(func(next resqued.Handler) resqued.Handler {
		return func(ctx context.Context, job *resqued.Job) error {
			err := next(ctx, job)
			fmt.Printf("%s: %v\n", job.Class, err)
			return err
		}
	})
	handler := resqued.Handler(func(context.Context, *resqued.Job) error { return errors.New("broken") })
	for _, m := range h.Middleware() {
		handler = m(handler)
	}
	_ = handler(context.Background(), &resqued.Job{Class: "Mail"})
	// Output: Mail: broken
}

// A handler that cannot do its work yet sends the job back to its queue.
func ExampleRequeue() {
	h := resqued.New()
	resqued.Handle(h, "Charge", func(ctx context.Context, account int) error {
		return fmt.Errorf("account %d is busy: %w", account, resqued.Requeue(30*time.Second))
	})
	err := perform(h, "Charge", `7`)
	var requeue *resqued.RequeueError
	fmt.Println(errors.As(err, &requeue), requeue.After)
	// Output: true 30s
}

// A job is found in the context, so that code far from the handler can use its
// fencing token.
func ExampleJobFrom() {
	h := resqued.New()
	resqued.Handle(h, "Rebuild", func(ctx context.Context, repo int) error {
		fmt.Println(resqued.JobFrom(ctx).Class, repo)
		return nil
	})
	_ = perform(h, "Rebuild", `3`)
	// Output: Rebuild 3
}

// A job that fails runs again, with growing waits, unless another try cannot help.
func ExampleRetry() {
	errNoAddress := errors.New("no such address")
	h := resqued.New()
	resqued.Handle(h, "Mail", func(ctx context.Context, to string) error {
		job := resqued.JobFrom(ctx)
		if to == "" {
			return errNoAddress
		}
		return fmt.Errorf("attempt %d of %d: the server is away", job.Attempt, job.MaxAttempts)
	}, resqued.Retry{
		Attempts: 8, Base: 5 * time.Second, Max: time.Hour,
		NeverOn: resqued.Errors{Is: []error{errNoAddress}},
	})
	class, _ := h.Lookup("Mail")
	fmt.Println(class.Retry.Attempts)
	// Output: 8
}
