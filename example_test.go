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

// Middleware surrounds every job; the first one added is the outermost.
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

// A job without work to do is discarded: it ends without a failure and does not run again.
func ExampleDiscard() {
	h := resqued.New()
	resqued.Handle(h, "Mail", func(ctx context.Context, user int) error {
		return fmt.Errorf("%w: there is no user %d", resqued.Discard, user)
	})
	err := perform(h, "Mail", `42`)
	fmt.Println(errors.Is(err, resqued.Discard), err)
	// Output: true resqued: discarded: there is no user 42
}

// A job that can continue elsewhere ends soon when its worker process exits, as in a deploy.
func ExampleLeaving() {
	h := resqued.New()
	resqued.Handle(h, "Import", func(ctx context.Context, rows []string) error {
		for i, row := range rows {
			select {
			case <-resqued.Leaving(ctx):
				fmt.Printf("%d rows are left\n", len(rows)-i)
				return resqued.Requeue(0)
			default:
				fmt.Println("imported", row)
			}
		}
		return nil
	})
	_ = perform(h, "Import", `["a","b"]`)
	// Output:
	// imported a
	// imported b
}

// Of the jobs for the same repository one runs at a time, for an hour at most. Another one that
// is taken in the meantime goes back to its queue.
func ExampleLock() {
	type Graph struct {
		Repo  int64
		Force bool
	}
	h := resqued.New()
	resqued.Handle(h, "Graph", func(ctx context.Context, g Graph) error {
		return nil
	}, resqued.Lock[Graph]{
		Timeout:    time.Hour,
		Identifier: func(g Graph) string { return fmt.Sprint(g.Repo) },
		OnLockFailed: func(ctx context.Context, g Graph) error {
			return resqued.Requeue(time.Minute)
		},
	})
	class, _ := h.Lookup("Graph")
	identifier, _ := class.Lock.Identifier(resqued.Args{json.RawMessage(`7`), json.RawMessage(`true`)})
	fmt.Println("lock:Graph:" + identifier)
	// Output: lock:Graph:7
}

// The functions that ask about locks need the context of a running job.
func ExampleRefreshLock() {
	err := resqued.RefreshLock(context.Background())
	fmt.Println(errors.Is(err, resqued.ErrOutsideJob))
	// Output: true
}

// Arguments can be decoded into a struct without a handler, in a hook for example.
func ExampleArgs_Decode() {
	job := &resqued.Job{Class: "Mail", Args: resqued.Args{json.RawMessage(`42`), json.RawMessage(`"hi"`)}}
	var mail struct {
		User    int64
		Subject string
	}
	err := job.Args.Decode(&mail)
	fmt.Println(mail.User, mail.Subject, err)
	// Output: 42 hi <nil>
}

// The same number, as encoding/json writes it and as Ruby does.
func ExampleRubyFloat() {
	plain, _ := json.Marshal([]float64{1, 0.00001})
	ruby, _ := json.Marshal([]resqued.RubyFloat{1, 0.00001})
	fmt.Println(string(plain), string(ruby))
	// Output: [1,0.00001] [1.0,1.0e-05]
}

// Hooks run at fixed points in the life of a job or a worker process.
func ExampleHandlers_Hook() {
	h := resqued.New()
	h.Hook(resqued.Hooks{
		AfterFork: func(ctx context.Context) error { return nil }, // connect to a database
		OnFailure: func(ctx context.Context, job *resqued.Job, err error) {
			fmt.Printf("%s has failed: %v\n", job.Class, err)
		},
	})
	for _, hooks := range h.AllHooks() { // as the daemon does
		hooks.OnFailure(context.Background(), &resqued.Job{Class: "Mail"}, errors.New("broken"))
	}
	// Output: Mail has failed: broken
}

// An external program as a handler. It finds the job as a line of JSON on its standard input.
func ExampleHandlers_Command() {
	h := resqued.New()
	h.Command("Thumbnail", []string{"/usr/local/bin/thumbnail", "--size", "200"}, resqued.Queue("images"), resqued.Timeout(time.Minute))
	fmt.Println(h.Classes())
	// Output: [Thumbnail]
}
