package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a namespace and the ticks that its server has handled.
type rig struct {
	t     *testing.T
	redis *redis.Client
	space string
	url   string

	mu sync.Mutex
	// seen are the calls that have handled ticks, by schedule.
	seen map[string][]span
	// early: one was handled before its time.
	early bool
}

// span are the ticks after from, up to to, that one call has handled.
type span struct {
	from, to time.Time
	enqueued int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := redistest.Shared(t)
	return &rig{t: t, redis: server.Client(t), url: server.URL(), space: redistest.Namespace(t), seen: map[string][]span{}}
}

func (r *rig) key(name string) string { return r.space + ":" + name }

// master is what one master has: a connection, and a clock that is wrong.
type master struct {
	*store.Store
	rig *rig
	// loses says how often a reply is lost, or a request.
	loses float64
	began time.Time
	ahead time.Duration
	rate  float64
	// stop ends the process, at a call if it comes to one.
	stop context.CancelFunc
	die  float64
}

var errLost = errors.New("lost")

func (m *master) Tick(ctx context.Context, req store.TickRequest) (store.TickReply, error) {
	if rand.Float64() < m.loses/2 {
		return store.TickReply{}, errLost
	}
	// Whatever becomes of the process, the server carries out what it was sent.
	reply, err := m.Store.Tick(context.WithoutCancel(ctx), req)
	if err == nil && reply.Status == store.TickDone && !req.Tick.IsZero() {
		m.rig.mu.Lock()
		m.rig.early = m.rig.early || reply.Now.Before(req.Tick)
		m.rig.seen[req.Name] = append(m.rig.seen[req.Name], span{req.Known.From, req.Tick, reply.Enqueued})
		m.rig.mu.Unlock()
	}
	if rand.Float64() < m.die {
		m.stop()
	}
	if rand.Float64() < m.loses/2 {
		return store.TickReply{}, errLost
	}
	return reply, err
}

func (m *master) clock() time.Time {
	return m.began.Add(m.ahead + time.Duration(float64(time.Since(m.began))*m.rate))
}

// open returns a store of its own for a master.
func (r *rig) open() *store.Store {
	r.t.Helper()
	s, err := store.Open(store.Options{URL: r.url, Namespace: r.space})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

// start runs a runner until its context ends.
func (r *rig) start(ctx context.Context, m *master, c Config) (done chan struct{}) {
	m.rig, m.began = r, time.Now()
	if m.rate == 0 {
		m.rate = 1
	}
	ctx, m.stop = context.WithCancel(ctx)
	runner := New(m, nopLogger())
	runner.now = m.clock
	runner.Set(c)
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer m.stop()
		runner.Run(ctx)
	}()
	return done
}

func nopLogger() *zap.Logger { return zap.NewNop() }

func secondly(name string) schedule.Definition {
	return schedule.Definition{Name: name, Class: "Tick", Queue: name, Args: json.RawMessage(`["` + name + `"]`), Cron: "* * * * * *", TimeZone: "UTC", CatchUp: schedule.CatchUpAll}
}

func (r *rig) record(name string) store.CronRecord {
	r.t.Helper()
	reply, err := r.open().Schedules(r.t.Context(), store.SchedulesRequest{Names: []string{name}})
	require.NoError(r.t, err)
	return reply.Records[0]
}

// TestEveryTickOnce: masters whose clocks go wrong in every way, whose calls get lost and
// who die at any moment handle each tick exactly once between them.
func TestEveryTickOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const schedules = 20
	ticks := 4
	if testing.Short() {
		ticks = 2
	}
	c := Config{Unique: func(queue string) bool { return queue == "unique" }}
	for i := range schedules {
		s := secondly(fmt.Sprint("s", i))
		switch i % 4 {
		case 1:
			s.Queue = "unique"
			s.Args = json.RawMessage(`[]`)
		case 2:
			s.Cron, s.TimeZone, s.Every = "", "", "1s"
		}
		c.Schedules = append(c.Schedules, s)
	}
	stop, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	stores := []*store.Store{r.open(), r.open(), r.open(), r.open()}
	for i, s := range stores {
		all.Go(func() {
			for stop.Err() == nil {
				m := &master{
					Store: s, loses: 0.2, die: 0.02, ahead: time.Duration(rand.IntN(7200)-3600) * time.Second,
					rate: []float64{1, 0.7, 1.5, 1.01}[i],
				}
				<-r.start(stop, m, c)
			}
		})
	}
	first := make([]time.Time, schedules)
	for i, s := range c.Schedules {
		r.eventually(func() bool {
			first[i] = r.record(s.Name).From
			return !first[i].IsZero()
		})
	}
	for i, s := range c.Schedules {
		r.eventually(func() bool { return r.record(s.Name).From.Sub(first[i]) >= time.Duration(ticks)*time.Second })
	}
	end()
	all.Wait()
	require.False(t, r.early)

	for _, s := range c.Schedules {
		r.exact(s, ticks)
	}
}

// exact: each tick of a schedule was handled once, and its jobs are in its queue.
func (r *rig) exact(s schedule.Definition, least int) {
	r.t.Helper()
	r.mu.Lock()
	spans := slices.SortedFunc(slices.Values(r.seen[s.Name]), func(a, b span) int { return a.from.Compare(b.from) })
	r.mu.Unlock()
	require.NotEmpty(r.t, spans, s.Name)
	timing, err := s.Timing()
	require.NoError(r.t, err)
	at, ticks := spans[0].from, 0
	for _, span := range spans {
		require.Equal(r.t, at.UTC(), span.from.UTC(), "%s: a tick was seen to twice, or left out", s.Name)
		for at.Before(span.to) {
			at = timing.Next(at)
			ticks++
		}
		require.Equal(r.t, at.UTC(), span.to.UTC(), s.Name)
	}
	require.Equal(r.t, at.UTC(), r.record(s.Name).From.UTC())
	require.GreaterOrEqual(r.t, ticks, least)
	if s.Queue == "unique" {
		ticks = 1
	}
	require.EqualValues(r.t, ticks, r.redis.LLen(r.t.Context(), r.key("queue:"+s.Queue)).Val(), s.Name)
}
