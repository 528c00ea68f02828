package handler_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

func newSet(t *testing.T, h *resqued.Handlers, o handler.Options) *handler.Set {
	t.Helper()
	s, err := handler.New(h, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// goSet returns a set with one Go function, "Run".
func goSet(t *testing.T, fn resqued.Handler, opts ...resqued.Option) *handler.Set {
	t.Helper()
	h := resqued.New()
	h.Register(resqued.Class{Name: "Run", Handler: fn}, opts...)
	return newSet(t, h, handler.Options{})
}

func perform(t *testing.T, s *handler.Set) error {
	t.Helper()
	return s.Run(t.Context(), &resqued.Job{Class: "Run"})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	command := func(argv ...string) resqued.Class { return resqued.Class{Command: &resqued.Command{Argv: argv}} }
	withEnv := command("x")
	withEnv.Command.Env = []string{"NAME"}
	withNUL := command("x")
	withNUL.Command.Env = []string{"NAME=a\x00b"}
	tests := []struct {
		name  string
		class resqued.Class
		want  string
	}{
		{"a class that is registered in Go, too", command("x"), `class "Run" is registered in Go and named under handlers in the configuration: remove one of them`},
		{"a class without a command", resqued.Class{}, `class "Other" has neither a function nor a command`},
		{"a command without a program", command(), `command of class "Other": it names no program`},
		{"a program with a NUL byte", command("x", "a\x00"), `command of class "Other": "a\x00" holds a NUL byte, which no program can be given`},
		{"a variable without a value", withEnv, `command of class "Other": "NAME" is not an environment variable: it must be NAME=value`},
		{"a variable with a NUL byte", withNUL, `command of class "Other": the environment variable "NAME" holds a NUL byte, which no program can be given`},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := resqued.New()
			h.Register(resqued.Class{Name: "Run", Handler: func(context.Context, *resqued.Job) error { return nil }})
			name := "Other"
			if i == 0 {
				name = "Run"
			}
			_, err := handler.New(h, handler.Options{Commands: map[string]resqued.Class{name: tt.class}})
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	for _, name := range []string{"Mail", "Mail::Daily", "FooBar", "foo-baz", "ÉtéMail"} {
		h.HandleArgs(name, func(context.Context, resqued.Args) error { return nil })
	}
	s := newSet(t, h, handler.Options{Commands: map[string]resqued.Class{
		"Thumb": {Queue: "thumbs", Command: &resqued.Command{Argv: []string{"thumb"}}},
	}})
	require.Equal(t, []string{"FooBar", "Mail", "Mail::Daily", "Thumb", "foo-baz", "ÉtéMail"}, s.Classes())
	for name, want := range map[string]string{
		"Mail": "Mail", "::Mail": "Mail", "::Mail::Daily": "Mail::Daily", "foo-bar": "FooBar",
		"foo-baz": "foo-baz", "été-mail": "ÉtéMail", "Thumb": "Thumb",
	} {
		class, ok := s.Lookup(name)
		require.True(t, ok, name)
		require.Equal(t, want, class.Name)
	}
	for _, name := range []string{"", "::foo-bar", "mail", "::", "-", "::::Mail", "Mail::", "thumb"} {
		_, ok := s.Lookup(name)
		require.False(t, ok, name)
	}
	class, _ := s.Lookup("Thumb")
	require.Equal(t, "thumbs", class.Queue)
}

func TestUnknownClass(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	for i := range 30 {
		h.HandleArgs(fmt.Sprintf("Class%02d", i), func(context.Context, resqued.Args) error { return nil })
	}
	h.HandleArgs("SendMail", func(context.Context, resqued.Args) error { return nil })
	var told error
	h.Hook(resqued.Hooks{OnFailure: func(_ context.Context, _ *resqued.Job, err error) { told = err }})
	s := newSet(t, h, handler.Options{})

	err := s.Run(t.Context(), &resqued.Job{Class: "Sendmial"})
	var unknown *handler.UnknownClassError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "SendMail", unknown.Known[0], "the nearest comes first")
	require.Len(t, unknown.Known, 10)
	require.Equal(t, 21, unknown.Others)
	require.Contains(t, err.Error(), `no handler for class "Sendmial"; known classes: SendMail, Class`)
	require.Contains(t, err.Error(), " and 21 more")
	require.Equal(t, err, told)
	exception, _, _ := handler.Describe(err)
	require.Equal(t, "Resqued::UnknownClass", exception)

	err = s.Run(t.Context(), &resqued.Job{Class: "../\x00\r\n<script>" + strings.Repeat("x", 10_000)})
	require.Contains(t, err.Error(), `"../\x00\r\n<script>xxx`)
	require.Less(t, len(err.Error()), 500)

	err = newSet(t, resqued.New(), handler.Options{}).Run(t.Context(), &resqued.Job{Class: "A"})
	require.EqualError(t, err, `no handler for class "A": no class is registered at all; name a command for it under handlers in the configuration, or for classes of Ruby, Python or Node start with --runner 'COMMAND'`)
}

func TestPerform(t *testing.T) {
	t.Parallel()

	t.Run("a handler finds its job in the context", func(t *testing.T) {
		t.Parallel()
		job := &resqued.Job{Class: "Run", Args: raw(`1`)}
		s := goSet(t, func(ctx context.Context, got *resqued.Job) error {
			require.Same(t, job, got)
			require.Same(t, job, resqued.JobFrom(ctx))
			require.True(t, job.Deadline.IsZero())
			return nil
		})
		require.NoError(t, s.Run(t.Context(), job))
	})

	t.Run("errors come back as they are", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		for _, want := range []error{broken, resqued.Discard, resqued.Requeue(time.Minute)} {
			require.Equal(t, want, perform(t, goSet(t, func(context.Context, *resqued.Job) error { return want })))
		}
	})

	t.Run("a panic is an error with its stack", func(t *testing.T) {
		t.Parallel()
		err := perform(t, goSet(t, func(context.Context, *resqued.Job) error { return deepPanic(3) }))
		var p *handler.PanicError
		require.ErrorAs(t, err, &p)
		require.Equal(t, "at the bottom", p.Value)
		exception, message, backtrace := handler.Describe(err)
		require.Equal(t, "Resqued::Panic", exception)
		require.Equal(t, "panic: at the bottom", message)
		require.Len(t, backtrace, 5, "the handler's own frames alone: %q", backtrace)
		require.Regexp(t, `handler_test\.go:\d+:in 'github\.com/resqued/resqued/internal/handler_test\.deepPanic'$`, backtrace[0])
		require.Contains(t, backtrace[4], "TestPerform")
	})

	t.Run("a panic of the runtime starts where it happened", func(t *testing.T) {
		t.Parallel()
		err := perform(t, goSet(t, func(_ context.Context, job *resqued.Job) error { return fmt.Errorf("%v", job.Args[7]) }))
		_, message, backtrace := handler.Describe(err)
		require.Contains(t, message, "index out of range [7]")
		require.Contains(t, backtrace[0], "TestPerform")
	})

	t.Run("a panic with Discard is still a failure", func(t *testing.T) {
		t.Parallel()
		err := perform(t, goSet(t, func(context.Context, *resqued.Job) error { panic(resqued.Discard) }))
		require.NotErrorIs(t, err, resqued.Discard)
	})

	t.Run("the end of a handler's goroutine is noticed", func(t *testing.T) {
		t.Parallel()
		err := perform(t, goSet(t, func(context.Context, *resqued.Job) error {
			runtime.Goexit()
			return nil
		}))
		var left *handler.GoexitError
		require.ErrorAs(t, err, &left)
		exception, _, backtrace := handler.Describe(err)
		require.Equal(t, "Resqued::Goexit", exception)
		require.Len(t, backtrace, 1, "the handler's own frames alone: %q", backtrace)
		require.Contains(t, backtrace[0], "TestPerform")
	})

	t.Run("a nil pointer in an error fails the job and nothing else", func(t *testing.T) {
		t.Parallel()
		var none *wrapper
		for _, ctx := range []context.Context{t.Context(), ended(t)} {
			err := goSet(t, func(context.Context, *resqued.Job) error { return none }).Run(ctx, &resqued.Job{Class: "Run"})
			require.Error(t, err)
			require.NotErrorIs(t, err, resqued.Discard)
			exception, message, _ := handler.Describe(err)
			require.Contains(t, []string{"*handler_test.wrapper", "Resque::DirtyExit"}, exception)
			require.Contains(t, message, "*handler_test.wrapper, which is broken")
			require.Contains(t, message, "nil pointer dereference")
		}
	})

	t.Run("a thread that a handler keeps locked does not hurt", func(t *testing.T) {
		t.Parallel()
		s := goSet(t, func(context.Context, *resqued.Job) error {
			runtime.LockOSThread()
			return nil
		})
		for range 10 {
			require.NoError(t, perform(t, s))
		}
	})
}

// wrapper is a typical wrapping error: no method expects a nil pointer.
type wrapper struct{ inner error }

func (w *wrapper) Error() string { return w.inner.Error() }
func (w *wrapper) Unwrap() error { return w.inner }

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(resqued.ErrKilled)
	return ctx
}

// deepPanic panics below n calls of itself.
func deepPanic(n int) error {
	if n == 0 {
		panic("at the bottom")
	}
	return deepPanic(n - 1)
}

// After max_run a job is asked to make room, like when its process leaves; nothing ends it.
func TestMaxRun(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context, _ *resqued.Job) error {
		<-resqued.Leaving(ctx)
		return ctx.Err()
	}
	require.NoError(t, perform(t, goSet(t, wait, resqued.MaxRun(time.Millisecond))))
	leaving, leave := context.WithCancel(t.Context())
	leave()
	s := goSet(t, wait, resqued.MaxRun(time.Hour))
	ctx := jobctx.WithLeaving(t.Context(), leaving)
	s.Perform(jobctx.WithJob(ctx, &resqued.Job{Class: s.Classes()[0]}), &resqued.Job{Class: s.Classes()[0]}, func(err error) { require.NoError(t, err) })
}

func TestTimeout(t *testing.T) {
	t.Parallel()

	t.Run("a handler that waits for its context", func(t *testing.T) {
		t.Parallel()
		var deadline time.Time
		s := goSet(t, func(ctx context.Context, job *resqued.Job) error {
			deadline = job.Deadline
			<-ctx.Done()
			return ctx.Err()
		}, resqued.Timeout(10*time.Millisecond))
		err := perform(t, s)
		require.ErrorIs(t, err, resqued.ErrTimeout)
		require.EqualError(t, err, "ran longer than 10ms: context deadline exceeded")
		require.WithinDuration(t, time.Now(), deadline, soon)
		exception, _, _ := handler.Describe(err)
		require.Equal(t, "Resqued::Timeout", exception)
	})
	t.Run("a handler that finishes nevertheless", func(t *testing.T) {
		t.Parallel()
		s := goSet(t, func(ctx context.Context, _ *resqued.Job) error {
			<-ctx.Done()
			return nil
		}, resqued.Timeout(time.Millisecond))
		require.NoError(t, perform(t, s))
	})
	t.Run("a handler's own deadline is not a timeout of the job", func(t *testing.T) {
		t.Parallel()
		s := goSet(t, func(context.Context, *resqued.Job) error { return context.DeadlineExceeded }, resqued.Timeout(time.Hour))
		require.Equal(t, context.DeadlineExceeded, perform(t, s))
	})
}

func TestStopped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		cause     error
		exception string
	}{
		{"a kill", resqued.ErrKilled, "Resque::DirtyExit"},
		{"a lost lock", resqued.ErrLockLost, "Resqued::LockLost"},
		{"anything else", errors.New("shut down"), "Resqued::Stopped"},
	} {
		t.Run(tt.name+" is told by the error", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			s := goSet(t, func(ctx context.Context, _ *resqued.Job) error {
				cancel(tt.cause)
				<-ctx.Done()
				return errors.New("write: broken pipe")
			}, resqued.Timeout(time.Hour))
			err := s.Run(ctx, &resqued.Job{Class: "Run"})
			require.ErrorIs(t, err, tt.cause)
			require.NotErrorIs(t, err, resqued.ErrTimeout)
			exception, message, _ := handler.Describe(err)
			require.Equal(t, tt.exception, exception)
			require.Equal(t, tt.cause.Error()+": write: broken pipe", message)
		})
	}
	t.Run("a job may still ask for another run", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		s := goSet(t, func(context.Context, *resqued.Job) error {
			cancel(resqued.ErrKilled)
			return resqued.Requeue(0)
		})
		var requeue *resqued.RequeueError
		require.ErrorAs(t, s.Run(ctx, &resqued.Job{Class: "Run"}), &requeue)
	})
}

func TestMiddlewareAndHooks(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(what string) { order = append(order, what) }
	around := func(name string) resqued.Middleware {
		return func(next resqued.Handler) resqued.Handler {
			return func(ctx context.Context, job *resqued.Job) error {
				note(name + " in")
				defer note(name + " out")
				return next(ctx, job)
			}
		}
	}
	broken := errors.New("broken")
	newHandlers := func(result error) *resqued.Handlers {
		order = nil
		h := resqued.New()
		h.Use(around("outer"), around("inner"))
		for _, name := range []string{"first", "second"} {
			h.Hook(resqued.Hooks{
				BeforePerform: func(context.Context, *resqued.Job) error { note(name + " before"); return nil },
				AfterPerform:  func(context.Context, *resqued.Job) { note(name + " after") },
				OnFailure:     func(_ context.Context, _ *resqued.Job, err error) { note(name + " failed: " + err.Error()) },
			})
			h.Hook(resqued.Hooks{})
		}
		h.HandleArgs("Run", func(context.Context, resqued.Args) error { note("run"); return result })
		return h
	}
	around2 := []string{"first before", "second before", "outer in", "inner in", "run", "inner out", "outer out"}

	require.NoError(t, perform(t, newSet(t, newHandlers(nil), handler.Options{})))
	require.Equal(t, append(around2, "first after", "second after"), order)

	require.Equal(t, broken, perform(t, newSet(t, newHandlers(broken), handler.Options{})))
	require.Equal(t, append(around2, "first failed: broken", "second failed: broken"), order)

	require.Equal(t, resqued.Discard, perform(t, newSet(t, newHandlers(resqued.Discard), handler.Options{})))
	require.Equal(t, around2, order, "a job that is discarded has not failed")

	h := newHandlers(nil)
	h.Hook(resqued.Hooks{BeforePerform: func(context.Context, *resqued.Job) error { return broken }})
	require.ErrorIs(t, perform(t, newSet(t, h, handler.Options{})), broken)
	require.Equal(t, []string{"first before", "second before", "first failed: before perform: broken", "second failed: before perform: broken"}, order)

	h = newHandlers(nil)
	h.Hook(resqued.Hooks{AfterPerform: func(context.Context, *resqued.Job) { panic("after") }})
	var p *handler.PanicError
	require.ErrorAs(t, perform(t, newSet(t, h, handler.Options{})), &p)

	core, logs := observer.New(zap.ErrorLevel)
	h = newHandlers(broken)
	h.Hook(resqued.Hooks{OnFailure: func(context.Context, *resqued.Job, error) { panic("twice") }})
	require.Equal(t, broken, perform(t, newSet(t, h, handler.Options{Log: zap.New(core)})), "the job's own error counts")
	require.Equal(t, 1, logs.FilterMessage("the OnFailure hook broke").Len())
}

// named has its own exception and backtrace.
type named struct{}

func (named) Error() string       { return "it broke" }
func (named) Exception() string   { return "Shop::OutOfStock" }
func (named) Backtrace() []string { return []string{"shop.go:1"} }

// nilError panics when asked for its text.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestDescribe(t *testing.T) {
	t.Parallel()
	path := &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}
	_, invalid := wire.Parse([]byte("x"), 0)
	tests := []struct {
		name      string
		err       error
		exception string
		message   string
		backtrace []string
	}{
		{"no error", nil, "", "", nil},
		{"a text alone", errors.New("broken"), "Error", "broken", nil},
		{"a wrapped text", fmt.Errorf("a: %w", errors.New("b")), "Error", "a: b", nil},
		{"an error with a type", path, "*fs.PathError", "open /x: file does not exist", nil},
		{"a wrapped error with a type", fmt.Errorf("a: %w", path), "*fs.PathError", "a: open /x: file does not exist", nil},
		{"joined errors", errors.Join(errors.New("a"), path), "*fs.PathError", "a\nopen /x: file does not exist", nil},
		{"several wrapped errors", fmt.Errorf("%w, %w", errors.New("a"), errors.New("b")), "Error", "a, b", nil},
		{"an error that names itself", fmt.Errorf("a: %w", named{}), "Shop::OutOfStock", "a: it broke", []string{"shop.go:1"}},
		{"a payload that is none", invalid, "Resqued::InvalidPayload", invalid.Error(), nil},
		{"a broken error", (*nilError)(nil), "*handler_test.nilError", "*handler_test.nilError, whose text is broken: runtime error: invalid memory address or nil pointer dereference", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			exception, message, backtrace := handler.Describe(tt.err)
			require.Equal(t, tt.exception, exception)
			require.Equal(t, tt.message, message)
			require.Equal(t, tt.backtrace, backtrace)
		})
	}
}

func TestTimeoutErrorIsShort(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]string{
		2 * time.Minute: "2m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 100 * time.Minute: "1h40m", 500 * time.Millisecond: "500ms",
	} {
		require.EqualError(t, &handler.TimeoutError{Limit: limit, Err: errors.New("x")}, "ran longer than "+want+": x")
	}
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Minute)
	for limit, want := range map[time.Duration]time.Time{time.Hour: soon, time.Second: time.Now().Add(time.Second)} {
		job := &resqued.Job{Class: "Run", Deadline: soon} // of its class lock
		s := goSet(t, func(context.Context, *resqued.Job) error { return nil }, resqued.Timeout(limit))
		require.NoError(t, s.Run(t.Context(), job))
		require.WithinDuration(t, want, job.Deadline, 30*time.Second)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	var ran []string
	perform := func(_ context.Context, job *resqued.Job) error {
		ran = append(ran, job.Class)
		return nil
	}
	h := resqued.New()
	for _, name := range []string{"*", "Mail", "Billing::*", "Billing::Refund*"} {
		h.Register(resqued.Class{Name: name, Handler: perform})
	}
	s := newSet(t, h, handler.Options{Commands: map[string]resqued.Class{
		"Thumb*": {Command: &resqued.Command{Argv: []string{"true"}}},
	}})
	for class, want := range map[string]string{
		"Mail": "Mail", "::Mail": "Mail", "mail": "*", "Billing::Pay": "Billing::*", "::Billing::Pay": "Billing::*",
		"Billing::RefundAll": "Billing::Refund*", "Thumbs": "Thumb*", "thumb-nail": "Thumb*", "": "*", "::": "*", "billing": "*",
	} {
		c, ok := s.Lookup(class)
		require.True(t, ok)
		require.Equal(t, want, c.Name, class)
	}
	require.NoError(t, s.Run(t.Context(), &resqued.Job{Class: "Billing::Pay"}))
	require.Equal(t, []string{"Billing::Pay"}, ran, "the job keeps its class")
}
