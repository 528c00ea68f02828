package workerproc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/schedule/delayed"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/internal/workerproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

const patience = time.Minute

// master is the master's end of the socket.
type master struct {
	t    *testing.T
	down chan proc.Message // to the worker
	up   chan proc.Message // from it
	once sync.Once
	beat atomic.Pointer[proc.Message] // the newest
	kill atomic.Pointer[proc.Message] // the newest of those that name killed jobs
	deaf bool                         // dies as the worker process is about to say that it is ready
}

func (m *master) Send(msg proc.Message) error {
	if m.deaf && msg.Type != proc.Hello {
		m.die()
		return syscall.EPIPE
	}
	switch msg.Type {
	case proc.Beat:
		m.beat.Store(&msg)
	case proc.Killing:
		m.kill.Store(&msg)
	case proc.Found, proc.Counted, proc.Happened:
	default:
		m.up <- msg
	}
	return nil
}

func (m *master) Recv() (proc.Message, error) {
	msg, ok := <-m.down
	if !ok {
		return proc.Message{}, io.EOF
	}
	return msg, nil
}

func (m *master) die() { m.once.Do(func() { close(m.down) }) }

func (m *master) expect(kind string) proc.Message {
	m.t.Helper()
	select {
	case msg := <-m.up:
		if msg.Type == proc.Apart && kind != proc.Apart { // it is told again and again
			return m.expect(kind)
		}
		require.Equal(m.t, kind, msg.Type, "%+v", msg)
		return msg
	case <-time.After(patience):
		require.Fail(m.t, "no message", kind)
		return proc.Message{}
	}
}

type handlers map[string]func(ctx context.Context, job *resqued.Job) error

func (h handlers) Lookup(class string, _ ...string) (*resqued.Class, bool) {
	_, ok := h[class]
	c := &resqued.Class{Name: class, AtMostOnce: class == "Once"}
	if class == "Resident" {
		c.Command = &resqued.Command{Runner: "app"}
	}
	return c, ok
}

func (h handlers) Perform(ctx context.Context, job *resqued.Job, done func(error)) {
	fn := h[job.Class]
	if fn == nil {
		done(fmt.Errorf("unknown class %q", job.Class))
		return
	}
	left := true
	defer func() {
		if left {
			done(errors.New("left"))
		}
	}()
	err := fn(ctx, job)
	left = false
	done(err)
}

func (h handlers) Refuse(_ context.Context, _ *resqued.Job, err error) error { return err }

type noStats struct{}

func (noStats) Job(string, string, time.Duration, time.Duration) {}
func (noStats) Count(string, int)                                {}

type fixture struct {
	*master
	t       *testing.T
	redis   *redis.Client
	store   *store.Store
	ns      string
	signals chan os.Signal
	exited  chan struct{}
	result  chan error
	started atomic.Int64
	// recorded is what processed was when the process ended itself.
	recorded int
}

type options struct {
	cfg     workerproc.Config
	queues  []string
	state   string
	wrap    func(workerproc.Store) workerproc.Store
	short   bool // leases of a few seconds, longer than a busy machine stalls; cfg may set that of locks
	hooks   resqued.Hooks
	events  chan workerproc.Event
	noReady bool
	deaf    bool // the master
	alone   bool
	timeout time.Duration // of the class Stuck
	locker  thread.Locker
	ends    func() time.Duration // of locks that are kept elsewhere
	retries *resqued.Retry       // of the class A
	style   string               // of job lock keys, for the check before a job begins
	namer   workerproc.Namer
	name    string // slot and sequence
	server  *redistest.Server
	user    string // of the server
	waker   bool
	// capacity and roomier are those of runners.
	capacity func() int
	roomier  chan struct{}
	open     func() (workerproc.Waiter, error) // instead of the store's
}

func start(t *testing.T, h handlers, o options) *fixture {
	t.Helper()
	server := o.server
	if server == nil {
		server = redistest.Shared(t)
	}
	f := &fixture{
		t: t, ns: redistest.Namespace(t), redis: server.Client(t), signals: make(chan os.Signal, 8),
		master: &master{t: t, down: make(chan proc.Message, 8), up: make(chan proc.Message, 64), deaf: o.deaf},
		exited: make(chan struct{}), result: make(chan error, 1),
	}
	so := store.Options{URL: server.URL(), Namespace: f.ns}
	if o.user != "" {
		so.URL = server.URLAs(o.user, "SECRET")
	}
	if o.short {
		so.Lease, so.LockTTL, so.BeatEvery = 8*time.Second, cmp.Or(o.cfg.LockDuration, 8*time.Second), 200*time.Millisecond
		o.cfg.LockDuration, o.cfg.BeatEvery = so.LockTTL, so.BeatEvery
	}
	s, err := store.Open(so)
	require.NoError(t, err)
	f.store = s
	if o.queues == nil {
		o.queues = []string{"q"}
	}
	o.cfg.Threads = max(o.cfg.Threads, 1)
	o.cfg.Queues, _, err = selector.Parse(o.queues, o.cfg.Threads)
	require.NoError(t, err)
	if o.cfg.Interval == 0 {
		o.cfg.Interval = 10 * time.Millisecond
	}
	o.cfg.Host, o.cfg.PID = "h", 7
	var ws workerproc.Store = s
	if o.wrap != nil {
		ws = o.wrap(s)
	}
	counted := handlers{}
	for class, fn := range h {
		counted[class] = func(ctx context.Context, job *resqued.Job) error {
			f.started.Add(1)
			return fn(ctx, job)
		}
	}
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(t)
	}
	deps := workerproc.Deps{
		Store: ws, Conn: f.master, Handlers: counted, Stats: noStats{}, Signals: f.signals, Log: log,
		Namer: o.namer, Hooks: []resqued.Hooks{o.hooks}, LocksEnd: o.ends, Capacity: o.capacity, Roomier: o.roomier,
		Runner: &thread.Runner{Performer: counted, Locker: o.locker, Describe: func(err error) (string, string, []string) {
			return "Error", err.Error(), nil
		}, Check: jobkey.NewCheck(o.style, s)},
		// The real one does not return, so it is called once.
		Exit: sync.OnceFunc(func() {
			f.recorded = f.processed()
			close(f.exited)
		}),
	}
	if o.retries != nil {
		deps.Runner.Retries = book(t, s, o.retries)
	}
	if o.waker {
		deps.OpenWaiter = func(waits int) (workerproc.Waiter, error) { return s.OpenWaiter(waits) }
		if o.open != nil {
			deps.OpenWaiter = func(int) (workerproc.Waiter, error) { return o.open() }
		}
	}
	if o.timeout > 0 {
		deps.Handlers = timed{counted, o.timeout}
	}
	if o.events != nil {
		deps.Observe = func(e workerproc.Event) { o.events <- e }
	}
	p, err := workerproc.New(o.cfg, deps)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup // they log to the test
	running.Go(func() { f.result <- p.Run(ctx) })
	// Actions of the master.
	forwarder := delayed.NewForwarder(delayed.Config{Stats: noStats{}}, s, log)
	running.Go(func() { forwarder.Run(ctx) })
	t.Cleanup(func() {
		f.die()
		cancel()
		running.Wait()
		require.NoError(t, s.Close())
	})
	f.expect(proc.Hello)
	if o.name == "" {
		o.name = "0.1"
	}
	state := o.state
	if state == "" {
		state = "running"
	}
	f.down <- proc.Message{Type: proc.Welcome, Proc: "h:boot:1-1:" + o.name, Slots: 2, State: state, Alone: o.alone}
	if !o.noReady {
		f.expect(proc.Ready)
	}
	return f
}

func (f *fixture) key(name string) string { return f.ns + ":" + name }

func (f *fixture) push(payloads ...string) {
	f.t.Helper()
	for _, p := range payloads {
		_, err := f.store.Push(f.t.Context(), "q", []byte(p))
		require.NoError(f.t, err)
	}
}

func (f *fixture) failed() []string {
	f.t.Helper()
	list, err := f.redis.LRange(f.t.Context(), f.key("failed"), 0, -1).Result()
	require.NoError(f.t, err)
	return list
}

func (f *fixture) waiting() int {
	return int(f.redis.LLen(f.t.Context(), f.key("queue:q")).Val())
}

func (f *fixture) processed() int {
	n, _, err := f.store.Stats(f.t.Context())
	require.NoError(f.t, err)
	return int(n)
}

// lose deletes the lock of a job until the job has lost it. To delete it once is not enough:
// a late beat, as on a busy machine, counts as an outage, after which the locks of all running
// jobs are taken again.
func (f *fixture) lose(job *resqued.Job, lost func() bool) {
	f.t.Helper()
	owner := f.redis.Get(f.t.Context(), job.LockKey).Val()
	require.NotEmpty(f.t, owner)
	eventually(f.t, "the loss of the lock", func() bool {
		require.NoError(f.t, f.redis.Eval(f.t.Context(), `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1`,
			[]string{job.LockKey}, owner).Err())
		return lost()
	})
}

// ends waits until Run returns and requires that nothing of the process is left.
func (f *fixture) ends() {
	f.t.Helper()
	select {
	case err := <-f.result:
		require.NoError(f.t, err)
	case <-time.After(patience):
		require.Fail(f.t, "the process does not leave")
	}
	for _, pattern := range []string{"resqued:inflight:*", "resqued:proc:*", "resqued:caps:*", "locket:*", "worker:*", "stat:*:h/*"} {
		keys, err := f.redis.Keys(f.t.Context(), f.key(pattern)).Result()
		require.NoError(f.t, err)
		require.Empty(f.t, keys)
	}
	require.Empty(f.t, f.redis.SMembers(f.t.Context(), f.key("workers")).Val())
	require.Zero(f.t, f.redis.ZCard(f.t.Context(), f.key("resqued:procs")).Val())
}

func (f *fixture) drain() {
	f.t.Helper()
	f.down <- proc.Message{Type: proc.SetState, State: "draining"}
	f.ends()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 3*time.Millisecond, what)
}

func payload(i int) string { return fmt.Sprintf(`{"class":"A","args":[%d]}`, i) }

func succeed(context.Context, *resqued.Job) error { return nil }

// gate returns a handler that waits until it is opened or its context ends.
func gate() (h func(context.Context, *resqued.Job) error, running chan *resqued.Job, open chan struct{}) {
	running, open = make(chan *resqued.Job, 100), make(chan struct{})
	return func(ctx context.Context, job *resqued.Job) error {
		running <- job
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, running, open
}

func TestWork(t *testing.T) {
	t.Parallel()

	t.Run("every job is performed once, and draining leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		var seen sync.Map
		f := start(t, handlers{"A": func(_ context.Context, job *resqued.Job) error {
			_, twice := seen.LoadOrStore(string(job.Args[0]), true)
			if twice {
				return errors.New("twice")
			}
			return nil
		}}, options{cfg: workerproc.Config{Threads: 8}})
		for i := range 500 {
			f.push(payload(i))
		}
		eventually(t, "all processed", func() bool { return f.processed() == 500 })
		require.Empty(t, f.failed())
		f.drain()
		f.expect(proc.Bye)
	})

	t.Run("a process never starts more jobs than its quota", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{cfg: workerproc.Config{Threads: 8, JobsPerFork: 50}})
		for i := range 60 {
			f.push(payload(i))
		}
		require.Equal(t, "quota", f.expect(proc.Retires).Reason)
		require.Equal(t, 50, f.expect(proc.Bye).Done)
		f.ends()
		require.Equal(t, 10, f.waiting())
		require.EqualValues(t, 50, f.started.Load())
	})

	t.Run("the first processes of a master have staggered quotas", func(t *testing.T) {
		t.Parallel()
		for name, quota := range map[string]int{"0.0": 8, "1.1": 6, "1.2": 8} {
			f := start(t, handlers{"A": succeed}, options{name: name, cfg: workerproc.Config{Threads: 8, JobsPerFork: 8}})
			for i := range 10 {
				f.push(payload(i))
			}
			f.expect(proc.Retires)
			require.Equal(t, quota, f.expect(proc.Bye).Done, name)
			require.NoError(t, <-f.result)
		}
	})

	t.Run("failures, discards and requeues end as they should", func(t *testing.T) {
		t.Parallel()
		var tries atomic.Int64
		f := start(t, handlers{
			"Fail":    func(context.Context, *resqued.Job) error { return errors.New("boom <&>") },
			"Discard": func(context.Context, *resqued.Job) error { return resqued.Discard },
			"Again": func(context.Context, *resqued.Job) error {
				if tries.Add(1) < 3 {
					return resqued.Requeue(time.Millisecond)
				}
				return nil
			},
		}, options{})
		f.push(`{"class":"Fail","args":[]}`, `{"class":"Discard"}`, `{"class":"Again","args":null}`, `{"class":"Nobody","args":[]}`)
		eventually(t, "all ended", func() bool { return f.processed() == 4 })
		require.EqualValues(t, 3, tries.Load())
		list := f.failed()
		require.Len(t, list, 2)
		require.Contains(t, list[0], `"payload":{"class":"Fail","args":[]},"exception":"Error","error":"boom <&>"`)
		require.Contains(t, list[0], `"worker":"`+wire.WorkerID(theProc, "h", 0, 0, 7, []string{"q"})+`","queue":"q"`)
		require.Contains(t, list[1], "Nobody")
		f.drain()
	})

	t.Run("payloads that are not jobs fail with their bytes, and work goes on", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{cfg: workerproc.Config{MaxPayload: 100}})
		f.push("garbage", `[]`, `{"class":7}`, "", payload(1), `{"class":"A","args":["`+string(make([]byte, 200))+`"]}`)
		eventually(t, "all ended", func() bool { return f.processed() == 6 })
		require.Len(t, f.failed(), 5)
		require.Contains(t, f.failed()[0], "Z2FyYmFnZQ==")
		require.EqualValues(t, 1, f.started.Load())
		f.drain()
	})

	t.Run("queues found by a glob are worked, and a running job is mirrored", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{queues: []string{"q*", "!queer"}})
		_, err := f.store.Push(t.Context(), "queer", []byte(payload(1)))
		require.NoError(t, err)
		_, err = f.store.Push(t.Context(), "quick", []byte(payload(2)))
		require.NoError(t, err)
		job := <-running
		require.Equal(t, "quick", job.Queue)
		require.Regexp(t, `^h:boot:1-1:0\.1/\d+$`, job.ID)
		id := wire.WorkerID(theProc, "h", 0, 0, 7, []string{"q*"})
		eventually(t, "mirrored", func() bool {
			return f.redis.Exists(t.Context(), f.key("worker:"+id)).Val() == 1
		})
		require.Contains(t, f.redis.Get(t.Context(), f.key("worker:"+id)).Val(), `"payload":{"class":"A","args":[2]}`)
		close(open)
		eventually(t, "done", func() bool { return f.processed() == 1 })
		f.drain()
		require.EqualValues(t, 1, f.redis.LLen(t.Context(), f.key("queue:queer")).Val())
	})

	t.Run("until empty: the process leaves when nothing waits", func(t *testing.T) {
		t.Parallel()
		var again atomic.Bool
		f := start(t, handlers{"A": func(context.Context, *resqued.Job) error {
			if again.CompareAndSwap(false, true) {
				return resqued.Requeue(200 * time.Millisecond)
			}
			return nil
		}}, options{state: "paused", cfg: workerproc.Config{UntilEmpty: true, Threads: 3}})
		for i := range 20 {
			f.push(payload(i))
		}
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		require.Equal(t, "empty", f.expect(proc.Bye).Reason)
		f.ends()
		require.Equal(t, 20, f.processed())
	})

	t.Run("hooks run around the life of the process", func(t *testing.T) {
		t.Parallel()
		var calls []string
		note := func(name string) func() { return func() { calls = append(calls, name) } }
		f := start(t, handlers{}, options{state: "paused", hooks: resqued.Hooks{
			AfterFork:   func(context.Context) error { note("fork")(); return nil },
			BeforePause: note("pause"), AfterPause: note("resume"),
		}})
		f.signals <- syscall.SIGCONT
		f.drain()
		require.Equal(t, []string{"fork", "pause", "resume"}, calls)
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	h, running, open := gate()
	// One thread, which is busy: with an idle thread a request for jobs might be under way when
	// the pause begins.
	f := start(t, handlers{"A": h}, options{})
	f.push(payload(1))
	<-running
	f.signals <- syscall.SIGUSR2
	eventually(t, "paused", func() bool {
		require.NoError(t, f.redis.Ping(t.Context()).Err())
		return len(f.signals) == 0
	})
	f.down <- proc.Message{Type: proc.SetState, State: "paused"}
	f.push(payload(2))
	close(open)
	eventually(t, "the job in hand is finished", func() bool { return f.processed() == 1 })
	require.Equal(t, 1, f.waiting())
	f.signals <- syscall.SIGCONT
	eventually(t, "resumed", func() bool { return f.processed() == 2 })
	f.drain()
}

func TestKill(t *testing.T) {
	t.Parallel()

	t.Run("a job that stops with its context is recorded as killed, and work goes on", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h, "B": succeed}, options{cfg: workerproc.Config{Threads: 2}})
		f.push(payload(1))
		<-running
		f.signals <- syscall.SIGUSR1
		eventually(t, "recorded", func() bool { return len(f.failed()) == 1 })
		require.Contains(t, f.failed()[0], `"exception":"Resque::DirtyExit","error":"Job was killed"`)
		f.push(`{"class":"B","args":[]}`)
		eventually(t, "work goes on", func() bool { return f.processed() == 2 })
		f.drain()
	})

	t.Run("TERM kills and leaves nothing", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h}, options{cfg: workerproc.Config{Threads: 2}})
		f.push(payload(1), payload(2), payload(3))
		<-running
		<-running
		f.down <- proc.Message{Type: proc.KillJobs, Grace: patience, Exit: true}
		f.ends()
		require.Len(t, f.failed(), 2)
		require.Equal(t, 1, f.waiting())
	})

	t.Run("its beats tell when the end of every killed job is recorded", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": func(ctx context.Context, job *resqued.Job) error { // ignores its kill
			return h(context.WithoutCancel(ctx), job)
		}}, options{short: true, cfg: workerproc.Config{Threads: 2}})
		f.push(payload(1))
		<-running
		f.down <- proc.Message{Type: proc.KillJobs, Grace: patience}
		eventually(t, "the kill is known", func() bool { b := f.beat.Load(); return b != nil && b.Kills == 1 && b.Doomed == 1 })
		close(open)
		eventually(t, "none is left", func() bool { return f.beat.Load().Doomed == 0 })
		require.Equal(t, 1, f.processed())
		f.drain()
	})

	t.Run("it names the jobs that were to be killed, and no later ones", func(t *testing.T) {
		t.Parallel()
		for name, kill := range map[string]func(f *fixture){
			"the master": func(f *fixture) { f.down <- proc.Message{Type: proc.KillJobs, Grace: patience} },
			"a signal":   func(f *fixture) { f.signals <- syscall.SIGUSR1 },
		} {
			h, running, open := gate()
			f := start(t, handlers{"A": func(ctx context.Context, job *resqued.Job) error { // ignores its kill
				return h(context.WithoutCancel(ctx), job)
			}}, options{cfg: workerproc.Config{Threads: 2, TermTimeout: patience}})
			f.push(payload(1))
			first := path.Base((<-running).ID)
			kill(f)
			eventually(t, name, func() bool { return f.kill.Load() != nil })
			f.push(payload(2))
			second := path.Base((<-running).ID)
			require.NotEqual(t, first, second)
			require.Equal(t, []string{first}, f.kill.Load().Tokens, name)
			if name == "the master" {
				require.Equal(t, 1, f.kill.Load().Kills)
			}
			close(open)
			f.drain()
		}
	})

	t.Run("a job that ignores its kill costs the process, which names it", func(t *testing.T) {
		t.Parallel()
		stuck, running := make(chan struct{}), make(chan *resqued.Job, 2)
		f := start(t, handlers{"A": func(_ context.Context, job *resqued.Job) error {
			running <- job
			<-stuck
			return nil
		}}, options{cfg: workerproc.Config{Threads: 1}})
		defer close(stuck)
		f.push(payload(1))
		token := path.Base((<-running).ID)
		f.down <- proc.Message{Type: proc.KillJobs, Grace: 30 * time.Millisecond}
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		require.Equal(t, []string{token}, f.expect(proc.Tainted).Tokens)
		<-f.exited
		// The record and the lock stay: only the master knows when the code has ended.
		require.EqualValues(t, 1, f.redis.HLen(t.Context(), f.key("resqued:inflight:h:boot:1-1:0.1")).Val())
		require.EqualValues(t, 1, f.redis.Exists(t.Context(), f.key("locket:job_locks:A[1]")).Val())
	})

	t.Run("neighbours of a stubborn job finish first", func(t *testing.T) {
		t.Parallel()
		stuck := make(chan struct{})
		h, running, open := gate()
		f := start(t, handlers{"A": h, "Stuck": func(_ context.Context, job *resqued.Job) error {
			running <- job
			<-stuck
			return nil
		}}, options{cfg: workerproc.Config{Threads: 2, TermTimeout: patience}})
		defer close(stuck)
		f.push(`{"class":"Stuck","args":[]}`)
		job := <-running
		f.push(payload(1))
		<-running
		run := f.askFor(job, store.KillRequest{Grace: time.Millisecond})
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		close(open)
		require.Equal(t, []string{run.Token}, f.expect(proc.Tainted).Tokens)
		<-f.exited
		require.Equal(t, 1, f.recorded, "before the process ends: else the neighbour would run again")
	})

	t.Run("redis cannot keep a process with a stubborn job", func(t *testing.T) {
		t.Parallel()
		stuck := make(chan struct{})
		h, running, open := gate()
		r := &refusing{}
		f := start(t, handlers{"A": h, "Stuck": func(_ context.Context, job *resqued.Job) error {
			running <- job
			<-stuck
			return nil
		}}, options{cfg: workerproc.Config{Threads: 2, TermTimeout: patience}, wrap: func(s workerproc.Store) workerproc.Store {
			r.Store = s
			return r
		}})
		defer close(stuck)
		f.push(`{"class":"Stuck","args":[]}`)
		job := <-running
		f.push(payload(1))
		<-running
		run := f.askFor(job, store.KillRequest{Grace: time.Millisecond})
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		r.away.Store(true)
		close(open)
		require.Equal(t, []string{run.Token}, f.expect(proc.Tainted).Tokens)
		<-f.exited
		require.Zero(t, f.recorded)
	})
}

func TestTheMasterDies(t *testing.T) {
	t.Parallel()
	h, running, open := gate()
	f := start(t, handlers{"A": h}, options{short: true})
	f.push(payload(1), payload(2))
	<-running
	f.die()
	eventually(t, "the death is noticed", func() bool {
		return f.redis.HGet(t.Context(), f.key("resqued:proc:h:boot:1-1:0.1"), "state").Val() == "draining"
	})
	close(open)
	f.ends()
	require.Equal(t, 1, f.processed())
	require.Equal(t, 1, f.waiting())
}

func TestTheMasterDiesAndRedisIsAway(t *testing.T) {
	t.Parallel()
	h, running, _ := gate()
	r := &refusing{}
	f := start(t, handlers{"A": h}, options{
		cfg: workerproc.Config{KillOnMasterDeath: true, TermTimeout: 50 * time.Millisecond},
		wrap: func(s workerproc.Store) workerproc.Store {
			r.Store = s
			return r
		},
	})
	f.push(payload(1))
	<-running
	r.away.Store(true)
	f.die()
	select {
	case <-f.exited:
	case <-time.After(patience):
		require.Fail(t, "the process stays for ever")
	}
}

func TestToldToGoBeforeItIsUp(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"draining", "killing"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := start(t, handlers{"A": succeed}, options{state: state, noReady: true})
			f.ends()
		})
	}
}

func TestAHookThatHangsHoldsUpNoEnd(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			hanging, hang := make(chan struct{}), make(chan struct{})
			defer close(hang)
			f := start(t, handlers{}, options{noReady: true, hooks: resqued.Hooks{AfterFork: func(context.Context) error {
				close(hanging)
				<-hang
				return nil
			}}})
			<-hanging
			f.signals <- sig
			f.ends()
		})
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()

	t.Run("a lost lock ends the context of its job", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h}, options{short: true})
		f.push(payload(1))
		job := <-running
		require.Positive(t, job.Fence())
		f.lose(job, func() bool { return len(f.failed()) == 1 })
		require.Contains(t, f.failed()[0], "Resqued::LockLost")
		f.drain()
	})

	t.Run("without a beat for too long, jobs with locks are stopped and the others go on", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		var cut atomic.Bool
		f := start(t, handlers{"A": h}, options{
			short: true, queues: []string{"q", "free"},
			cfg:  workerproc.Config{Threads: 2, LockDuration: 5 * time.Second, Locketed: func(q string) bool { return q != "free" }},
			wrap: func(s workerproc.Store) workerproc.Store { return &deaf{Store: s, cut: &cut} },
		})
		f.push(payload(1))
		<-running
		_, err := f.store.Push(t.Context(), "free", []byte(payload(2)))
		require.NoError(t, err)
		<-running
		cut.Store(true)
		eventually(t, "the locked job is stopped", func() bool { return len(f.failed()) == 1 })
		require.Contains(t, f.failed()[0], "no heartbeat")
		cut.Store(false)
		close(open)
		eventually(t, "the other one finishes", func() bool { return f.processed() == 2 })
		f.drain()
	})

	t.Run("a lock counts from when it was taken, not from a beat long before", func(t *testing.T) {
		t.Parallel()
		var cut atomic.Bool
		began := make(chan struct{}, 1)
		f := start(t, handlers{"A": func(ctx context.Context, _ *resqued.Job) error {
			began <- struct{}{}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(6 * workerproc.TickEvery): // some looks at the locks
				return nil
			}
		}}, options{
			short: true, cfg: workerproc.Config{LockDuration: 5 * time.Second},
			wrap: func(s workerproc.Store) workerproc.Store { return &deaf{Store: s, cut: &cut} },
		})
		cut.Store(true)
		<-time.After(3 * time.Second) // a job with a lock from before would have to stop
		// Another beat keeps its lease, so that it may take jobs.
		_, err := f.store.Beat(t.Context(), store.BeatRequest{Proc: "h:boot:1-1:0.1"})
		require.NoError(t, err)
		f.push(payload(1))
		<-began
		eventually(t, "the end of the job", func() bool { return f.processed() == 1 })
		require.Empty(t, f.failed())
		cut.Store(false)
		f.drain()
	})

	t.Run("when redis has lost its data, jobs with locks are stopped and all else goes on", func(t *testing.T) {
		t.Parallel()
		running, open, ended := make(chan *resqued.Job, 10), make(chan struct{}), make(chan error, 10)
		h := func(ctx context.Context, job *resqued.Job) error {
			running <- job
			select {
			case <-open:
			case <-ctx.Done():
			}
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		}
		f := start(t, handlers{"A": h}, options{
			short: true, queues: []string{"q", "free"},
			cfg: workerproc.Config{Threads: 2, Locketed: func(q string) bool { return q != "free" }},
		})
		f.push(payload(1))
		<-running
		_, err := f.store.Push(t.Context(), "free", []byte(payload(2)))
		require.NoError(t, err)
		<-running
		keys, err := f.redis.Keys(t.Context(), f.key("*")).Result()
		require.NoError(t, err)
		require.NoError(t, f.redis.Del(t.Context(), keys...).Err())
		require.ErrorIs(t, <-ended, resqued.ErrLockLost)
		f.push(payload(3))
		require.Equal(t, payload(3), string((<-running).Payload), "the process is registered again")
		close(open)
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		f.drain()
		require.Equal(t, 1, f.processed(), "what began before has nowhere to be counted")
	})

	t.Run("a process that was given up for dead ends at once", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h}, options{short: true})
		f.push(payload(1))
		<-running
		_, _, err := f.store.Fence(t.Context(), "h:boot:1-1:0.1", true)
		require.NoError(t, err)
		require.ErrorIs(t, <-f.result, workerproc.ErrFenced)
	})
}

// deaf is a Redis that loses beats while cut is set.
type deaf struct {
	workerproc.Store
	cut *atomic.Bool
}

func (d *deaf) Beat(ctx context.Context, b store.BeatRequest) (store.BeatReply, error) {
	if d.cut.Load() {
		return store.BeatReply{}, errors.New("cut off")
	}
	return d.Store.Beat(ctx, b)
}

// refusing is a Redis that answers no exchange while away is set.
type refusing struct {
	workerproc.Store
	away atomic.Bool
}

func (r *refusing) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	if r.away.Load() {
		return store.ExchangeReply{}, io.ErrUnexpectedEOF
	}
	return r.Store.Exchange(ctx, req)
}

// overwriting simulates a worker of resque-locket that has seen no lock on a job, and sets it
// after resqued has taken the first.
type overwriting struct {
	workerproc.Store
	redis *redis.Client
	once  sync.Once
	lock  chan string
}

func (o *overwriting) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	reply, err := o.Store.Exchange(ctx, req)
	if len(reply.Jobs) > 0 {
		o.once.Do(func() {
			_ = o.redis.Do(ctx, "setex", reply.Jobs[0].LockKey, 35, "").Err()
			o.lock <- reply.Jobs[0].LockKey
		})
	}
	return reply, err
}

func TestALockThatRubyHasOverwritten(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, style := range []string{"ruby", "ruby34"} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			o := &overwriting{redis: server.Client(t), lock: make(chan string, 1)}
			f := start(t, handlers{"A": succeed}, options{style: style, server: server, wrap: func(s workerproc.Store) workerproc.Store {
				o.Store = s
				return o
			}})
			f.push(payload(1))
			lock := <-o.lock
			eventually(t, "the job waits as a locked one", func() bool {
				return f.redis.HGet(t.Context(), f.key("locket:queue_lock_counters"), "q").Val() == "1"
			})
			require.Zero(t, f.started.Load())
			require.Empty(t, f.redis.Get(t.Context(), lock).Val(), "the lock is Ruby's still")
			require.NoError(t, f.redis.Del(t.Context(), lock).Err())
			eventually(t, "it runs", func() bool { return f.processed() == 1 })
			require.EqualValues(t, 1, f.started.Load())
			f.drain()
		})
	}
}

// lossy executes every exchange and loses some replies.
type lossy struct {
	workerproc.Store
	calls atomic.Int64
}

func (l *lossy) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	reply, err := l.Store.Exchange(ctx, req)
	if l.calls.Add(1)%3 == 0 {
		return store.ExchangeReply{}, io.ErrUnexpectedEOF
	}
	return reply, err
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	f := start(t, handlers{"A": succeed}, options{cfg: workerproc.Config{Threads: 4}, wrap: func(s workerproc.Store) workerproc.Store {
		return &lossy{Store: s}
	}})
	for i := range 60 {
		f.push(payload(i))
	}
	eventually(t, "all processed", func() bool { return f.processed() == 60 })
	require.EqualValues(t, 60, f.started.Load())
	f.drain()
}
