//go:build unix

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withRedis{m}, redistest.Probing()) }

type mail struct {
	User    int
	Subject string
	note    string // not exported, so no argument
}

type fixture struct {
	*client.Client
	redis *redis.Client
	ns    string
}

func setup(t *testing.T, o client.Options) *fixture {
	t.Helper()
	server := redistest.Shared(t)
	o.URL, o.Namespace = server.URL(), redistest.Namespace(t)
	c, err := client.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &fixture{Client: c, redis: server.Client(t), ns: o.Namespace}
}

func (f *fixture) queue(t *testing.T, name string) []string {
	t.Helper()
	list, err := f.redis.LRange(t.Context(), f.ns+":queue:"+name, 0, -1).Result()
	require.NoError(t, err)
	return list
}

func TestEnqueue(t *testing.T) {
	t.Parallel()

	payloads := map[string]struct {
		args any
		want string
	}{
		"a struct's exported fields":      {mail{42, "hi", ""}, `[42,"hi"]`},
		"a pointer to a struct":           {&mail{42, "<&>\u2028", ""}, "[42,\"<&>\u2028\"]"},
		"no arguments":                    {nil, `[]`},
		"an empty struct":                 {struct{}{}, `[]`},
		"a slice, one for each element":   {[]any{1, "x", map[string]any{}, []int{}}, `[1,"x",{},[]]`},
		"a single value":                  {"you", `["you"]`},
		"a map as the only argument":      {map[string]int{"b": 1, "a": 2}, `[{"a":2,"b":1}]`},
		"a struct that encodes itself":    {time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), `["2026-01-02T03:04:05Z"]`},
		"raw arguments, byte by byte":     {resqued.Args{json.RawMessage(`{"b": 1,  "a":12345678901234567}`)}, `[{"b": 1,  "a":12345678901234567}]`},
		"floats, as Ruby writes them":     {[]any{resqued.RubyFloat(1), resqued.RubyFloat(1e-5), resqued.RubyFloat(1e21), 1.0}, `[1.0,1.0e-05,1.0e+21,1]`},
		"one raw value":                   {json.RawMessage(`[1,2]`), `[[1,2]]`},
		"a list as the only argument":     {[]any{[]int{1, 2}}, `[[1,2]]`},
		"bytes, which JSON writes as one": {[]byte("hi"), `["aGk="]`},
	}
	for name, c := range payloads {
		t.Run("pushes "+name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{})
			res, err := f.Enqueue(t.Context(), "Mail", c.args, client.Queue("mail"))
			require.NoError(t, err)
			require.Equal(t, client.Result{Queue: "mail", Position: 1, Status: client.StatusEnqueued}, res)
			require.Equal(t, []string{`{"class":"Mail","args":` + c.want + `}`}, f.queue(t, "mail"))
			require.Equal(t, []string{"mail"}, f.redis.SMembers(t.Context(), f.ns+":queues").Val())
		})
	}

	t.Run("a raw payload is pushed as it is", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		raw := `{ "class":"A","args":[1.0],"id":"x",  "extra":{} }`
		_, err := f.EnqueueRaw(t.Context(), []byte(raw), client.Queue("q"))
		require.NoError(t, err)
		require.Equal(t, []string{raw}, f.queue(t, "q"))
	})

	t.Run("what no worker could read is refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		_, err := f.EnqueueRaw(t.Context(), []byte(`{"class":"A","args":{}}`), client.Queue("q"))
		require.ErrorContains(t, err, `"args" is an object`)
		require.True(t, client.NotEnqueued(err))
		_, err = f.Enqueue(t.Context(), "", nil, client.Queue("q"))
		require.Error(t, err)
		_, err = f.Enqueue(t.Context(), "A", func() {}, client.Queue("q"))
		require.Error(t, err)
		require.True(t, client.NotEnqueued(err))
		require.Empty(t, f.queue(t, "q"))
	})

	t.Run("a context that has ended enqueues nothing", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.Enqueue(ctx, "A", nil, client.Queue("q"))
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, client.NotEnqueued(err))
		require.Empty(t, f.queue(t, "q"))
	})

	t.Run("goroutines that enqueue at the same time have their own answers", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{UniqueQueues: []string{"u"}})
		var all sync.WaitGroup
		places := make([][]int64, 20)
		for g := range places {
			all.Go(func() {
				for i := range 20 {
					res, err := f.Enqueue(t.Context(), "A", []any{g, i}, client.Queue("q"))
					if !assert.NoError(t, err) {
						return
					}
					places[g] = append(places[g], res.Position)
					res, err = f.Enqueue(t.Context(), "A", i, client.Queue("u"))
					assert.NoError(t, err)
					assert.Contains(t, []client.Status{client.StatusEnqueued, client.StatusDuplicate}, res.Status)
				}
			})
		}
		all.Wait()
		list := f.queue(t, "q")
		require.Len(t, list, 400)
		for g, of := range places {
			for i, place := range of {
				require.Equal(t, fmt.Sprintf(`{"class":"A","args":[%d,%d]}`, g, i), list[place-1])
			}
			require.True(t, slices.IsSorted(of))
		}
		require.Len(t, f.queue(t, "u"), 20)
	})

	t.Run("a name that a unique queue has for its keys is refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		for _, queue := range []string{"q:start_at", "q:uniqueue"} {
			_, err := f.Enqueue(t.Context(), "A", 1, client.Queue(queue))
			require.ErrorContains(t, err, queue)
			require.True(t, client.NotEnqueued(err))
			_, err = f.Enqueue(t.Context(), "A", 1, client.Queue(queue), client.In(time.Hour))
			require.ErrorContains(t, err, queue)
			_, err = f.EnqueueMany(t.Context(), []client.EnqueueParams{{Class: "A", Queue: queue}})
			require.ErrorContains(t, err, queue)
			_, err = f.RemoveQueue(t.Context(), queue)
			require.ErrorContains(t, err, queue)
			_, err = f.Dequeue(t.Context(), queue, "A", 1)
			require.ErrorContains(t, err, queue)
			require.Empty(t, f.queue(t, queue))
		}
	})

	t.Run("the queue comes from the class, and the call wins", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		h.HandleArgs("Mail", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("mail"))
		f := setup(t, client.Options{Handlers: h})
		res, err := f.Enqueue(t.Context(), "Mail", nil)
		require.NoError(t, err)
		require.Equal(t, "mail", res.Queue)
		res, err = f.Enqueue(t.Context(), "Mail", nil, client.Queue("slow"))
		require.NoError(t, err)
		require.Equal(t, "slow", res.Queue)
	})

	t.Run("no queue is an error that says what to do", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{Handlers: resqued.New()})
		_, err := f.Enqueue(t.Context(), "Mail", nil)
		require.ErrorIs(t, err, client.ErrNoQueue)
		require.ErrorContains(t, err, `enqueue "Mail"`)
		require.True(t, client.NotEnqueued(err))
	})
}

// TestSilentRedis: a call ends with its context, says so, and does not say that the job was not pushed.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]struct {
		how func(context.Context) (context.Context, context.CancelFunc)
		is  error
	}{
		"cancelled": {context.WithCancel, context.Canceled},
		"its time is over": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 200*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			c, err := client.New(client.Options{URL: "redis://" + l.Addr().String()})
			require.NoError(t, err)
			ctx, cancel := ends.how(t.Context())
			defer cancel()
			heard := make(chan net.Conn, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, _ = conn.Read(make([]byte, 1))
				}
				if ends.is == context.Canceled { //nolint:errorlint // of this test
					cancel()
				}
				heard <- conn
			}()
			_, err = c.Enqueue(ctx, "Mail", nil, client.Queue("mail"))
			require.ErrorIs(t, err, ends.is)
			require.ErrorContains(t, err, "not known whether the job was pushed")
			require.False(t, client.NotEnqueued(err))
			conn := <-heard
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err = io.Copy(io.Discard, conn)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it did not wait until the connection was given up")
			require.NoError(t, conn.Close())
			require.NoError(t, c.Close())
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{TLS: true, Args: []string{"--tls-auth-clients", "yes"}, Users: []string{"default off", "alice on >secret ~* &* +@all"}})
	url := server.URLAs("alice", "secret")
	c, err := client.New(client.Options{URL: url, CAFile: server.CAFile, CertFile: server.CAFile, KeyFile: server.KeyFile})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"))
	require.NoError(t, err)

	distrustful, err := client.New(client.Options{URL: url})
	require.NoError(t, err)
	defer func() { _ = distrustful.Close() }()
	_, err = distrustful.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"))
	for errors.Is(err, context.DeadlineExceeded) { // a busy machine is late
		_, err = distrustful.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"))
	}
	require.ErrorContains(t, err, "certificate")
	require.NotContains(t, err.Error(), "secret")
}

func TestHooks(t *testing.T) {
	t.Parallel()
	full := errors.New("quota is used up")
	var seen []string
	f := setup(t, client.Options{Hooks: []client.Hooks{
		{BeforeEnqueue: func(_ context.Context, job *client.Job) error {
			if job.Class == "Refused" {
				return full
			}
			job.Queue += "-eu"
			return nil
		}},
		{AfterEnqueue: func(_ context.Context, job *client.Job, res client.Result) {
			seen = append(seen, job.Class+string(job.Args[0])+res.Queue)
		}},
	}})
	res, err := f.Enqueue(t.Context(), "Mail", 7, client.Queue("mail"))
	require.NoError(t, err)
	require.Equal(t, "mail-eu", res.Queue)

	_, err = f.Enqueue(t.Context(), "Refused", 7, client.Queue("mail"))
	require.ErrorIs(t, err, full)
	require.True(t, client.NotEnqueued(err))
	require.Equal(t, []string{"Mail7mail-eu"}, seen)
	require.Len(t, f.queue(t, "mail-eu"), 1)
}

func TestOutage(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	client.SetRedisLog(func(text string) {
		if strings.Contains(text, "failed to dial") {
			dials.Add(1)
		}
	})
	defer client.SetRedisLog(nil)
	c, err := client.New(client.Options{URL: "redis://127.0.0.1:1/0"})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"))
	require.True(t, client.Unreachable(err), err)
	require.Positive(t, dials.Load())
	require.True(t, client.NotEnqueued(err), err)

	_, err = client.New(client.Options{URL: "http://127.0.0.1"})
	require.ErrorContains(t, err, "redis_url")
}

// A program that only enqueues must not pay for the daemon's libraries.
func TestLinksNoDaemon(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, heavy := range []string{"spf13/cobra", "spf13/viper", "go.uber.org/zap", "testify", "miniredis"} {
			require.NotContains(t, dep, heavy)
		}
	}
}
