package resquedtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/resquedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(program{m}) }

// program runs all tests and examples.
type program struct{ m *testing.M }

// Run runs them, and ends exampleT.
func (p program) Run() int {
	code := p.m.Run()
	for _, cleanup := range slices.Backward(t.cleanups) {
		cleanup()
	}
	return code
}

// t is the t of the examples.
var t = &exampleT{}

// exampleT replaces the *testing.T of a test.
type exampleT struct {
	testing.TB

	cleanups []func()
}

func (e *exampleT) Helper() {}

func (e *exampleT) Context() context.Context { return context.Background() }

func (e *exampleT) Cleanup(fn func()) { e.cleanups = append(e.cleanups, fn) }

func (e *exampleT) Logf(string, ...any) {}

func (e *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (e *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var errBoom = errors.New("boom")

// mail is what the handlers of these tests take.
type mail struct {
	User    int
	Subject string
}

// calls notes what handlers were called with.
type calls struct {
	mu  sync.Mutex
	all []string
}

func (c *calls) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fmt.Sprintf(format, args...))
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// number registers a class that takes a number.
func number(h *resqued.Handlers, class string, fn func(ctx context.Context, n int) error, opts ...resqued.Option) {
	resqued.Handle(h, class, fn, append([]resqued.Option{resqued.Queue("low")}, opts...)...)
}

// fails registers a class whose handler returns err.
func fails(h *resqued.Handlers, class string, err error, opts ...resqued.Option) {
	number(h, class, func(context.Context, int) error { return err }, opts...)
}

func enqueue(t *testing.T, q *resquedtest.Queues, class string, args any, opts ...client.Option) client.Result {
	t.Helper()
	res, err := q.Client().Enqueue(t.Context(), class, args, opts...)
	require.NoError(t, err)
	return res
}

// lines are runs as texts.
func lines(ended []resquedtest.Ended) []string {
	var texts []string
	for _, e := range ended {
		texts = append(texts, e.String())
	}
	return texts
}

// failing is a test that is expected to fail. It records the messages.
type failing struct {
	testing.TB

	mu       sync.Mutex
	messages []string
}

// expectFailure runs fn with a test that has to fail, and returns its messages.
func expectFailure(t *testing.T, fn func(t testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	var done sync.WaitGroup
	done.Go(func() { fn(f) })
	done.Wait()
	require.NotEmpty(t, f.messages, "the test has not failed")
	return strings.Join(f.messages, "\n")
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

func join(parts ...any) string { return strings.TrimSuffix(fmt.Sprintln(parts...), "\n") }

// status is the status of an enqueued job.
func status(res client.Result) string { return string(res.Status) }
