package resquedtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/resquedtest"
)

// Mail is a job's arguments.
type Mail struct {
	User    int
	Subject string
}

// handlers returns a program's handlers, as its main function passes them to daemon.Main.
func handlers() *resqued.Handlers {
	h := resqued.New()
	resqued.Handle(h, "Mail", func(_ context.Context, m Mail) error {
		if m.User == 0 {
			return errors.New("no such user")
		}
		fmt.Printf("to user %d: %s\n", m.User, m.Subject)
		return nil
	}, resqued.Queue("mail"), resqued.Retry{Attempts: 2, Backoff: []time.Duration{time.Minute}})
	return h
}

func Example() {
	q := resquedtest.New(t, handlers())
	_, _ = q.Client().Enqueue(t.Context(), "Mail", Mail{42, "hello"})
	_, _ = q.Client().Enqueue(t.Context(), "Mail", Mail{0, "hello"})
	for _, job := range q.Drain(t) {
		fmt.Println(job.Class, job.Args, job.Outcome, job.Err)
	}

	q.Advance(time.Minute) // then the job that has failed runs again
	for _, job := range q.Drain(t) {
		fmt.Println(job.Class, job.Args, job.Outcome, job.Err)
	}
	fmt.Println(q.Failed()[0])
	// Output:
	// to user 42: hello
	// Mail [42,"hello"] done <nil>
	// Mail [0,"hello"] retried no such user
	// Mail [0,"hello"] failed no such user
	// mail: Mail [0,"hello"]: Error: no such user
}

// Code that enqueues a job can be tested without running it.
func ExampleRequire() {
	q := resquedtest.New(t, handlers())
	signUp := func(c *client.Client, user int) error {
		_, err := c.Enqueue(t.Context(), "Mail", Mail{user, "welcome"}, client.In(time.Hour))
		return err
	}

	_ = signUp(q.Client(), 42)
	m := resquedtest.Require(t, q, func(m Mail) bool { return m.User == 42 })
	fmt.Println(m.Subject)
	resquedtest.RequireNone(t, q, func(m Mail) bool { return m.User != 42 })
	// Output:
	// welcome
}

// A handler function can be tested by itself, for any run of its job.
func ExampleJob() {
	handle := func(ctx context.Context, job *resqued.Job) error {
		fmt.Printf("attempt %d, write only if no fence above %d was there\n", job.Attempt, job.Fence())
		<-ctx.Done()
		return context.Cause(ctx)
	}

	ctx, job := resquedtest.Job(t, "Mail", Mail{User: 42},
		resquedtest.WithAttempt(3), resquedtest.WithFence(17), resquedtest.WithDeadline(time.Millisecond))
	fmt.Println(handle(ctx, job))
	// Output:
	// attempt 3, write only if no fence above 17 was there
	// resqued: job timed out
}

// With Inline a job has run when the call that enqueues it returns.
func ExampleQueues_Inline() {
	q := resquedtest.New(t, handlers())
	q.Inline()
	_, _ = q.Client().Enqueue(t.Context(), "Mail", Mail{42, "hello"})
	fmt.Println(q.Ended())
	// Output:
	// to user 42: hello
	// [mail: Mail [42,"hello"] done]
}

// A handler that calls Drain shows which jobs its lock keeps out.
func ExampleQueues_Drain_locks() {
	h := resqued.New()
	var q *resquedtest.Queues
	resqued.Handle(h, "Report", func(_ context.Context, _ string) error {
		fmt.Println("meanwhile:", q.Drain(t)[0].Outcome)
		return nil
	}, resqued.Queue("reports"), resqued.Lock[string]{ClassWide: true})
	q = resquedtest.New(t, h)
	_, _ = q.Client().Enqueue(t.Context(), "Report", "sales")
	_, _ = q.Client().Enqueue(t.Context(), "Report", "stock")
	fmt.Println("first:", q.Drain(t)[0].Outcome)
	// Output:
	// meanwhile: dropped
	// first: done
}

// Runs of long jobs are performed slice by slice.
func ExampleQueues_LongJobs() {
	h := resqued.New()
	longjob.Register(h, "Copy", func(ctx context.Context, r *longjob.Runner, site int) error {
		for _, table := range []string{"users", "files"} {
			err := r.WorkOnce(ctx, table, func(context.Context) error {
				fmt.Printf("copy %s of site %d\n", table, site)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}, longjob.Options{Queue: "low", MaxUnits: 1}) // a slice for each unit
	q := resquedtest.New(t, h)
	run, _ := q.LongJobs().Enqueue(t.Context(), "Copy", 7)
	q.Drain(t)
	state, _ := q.LongJobs().Get(t.Context(), run.UUID)
	fmt.Println(state.Status)
	// Output:
	// copy users of site 7
	// copy files of site 7
	// completed
}
