package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/storetest"
)

// uniqueModel works one unique queue with everything that resqued does to it, beside
// strangers that do not know its companions, and keeps a list of what must wait.
type uniqueModel struct {
	store *store.Store
	redis *redis.Client
	ctx   context.Context //nolint:containedctx // of the test
	key   string
	held  []store.Reserved
	// waits is the queue as it has to be, but for equal jobs that strangers pushed and
	// that a healing may drop.
	waits  []string
	number int

	// far has the scripts look at so few jobs that the queue is a long one to them; alone
	// says that no stranger comes, touched that its set may not match since it was settled
	// last.
	far, alone, touched bool
}

// farApart is what makes a queue of a few jobs a long one.
var farApart = []string{
	"local part = 1000 ", "local part = 3 ", "local near = 1000 ", "local near = 2 ", "deep = 25000, looks = 50000", "deep = 1, looks = 6",
	"math.floor(twins.looks / 2), 100)", "math.floor(twins.looks / 2), 1)", "found(key, payload, n, 10000)", "found(key, payload, n, 1)",
}

func (m *uniqueModel) payload(t *rapid.T) string {
	most := 30
	if m.far {
		most = 8
	}
	return fmt.Sprintf(`{"class":"A","args":[%d]}`, rapid.IntRange(0, most).Draw(t, "payload"))
}

func (m *uniqueModel) ok(t *rapid.T, err error) {
	if err != nil && err != redis.Nil { //nolint:errorlint // never wrapped
		t.Helper()
		t.Fatal(err)
	}
}

// sync takes over what the queue is, after a healing may have dropped equal jobs:
// those behind the first, which may have been taken since.
func (m *uniqueModel) sync(t *rapid.T, taken ...string) {
	list, err := m.redis.LRange(m.ctx, m.key, 0, -1).Result()
	m.ok(t, err)
	i := 0
	for j, payload := range m.waits {
		if i < len(list) && list[i] == payload {
			i++
		} else if !slices.Contains(m.waits[:j], payload) && !slices.Contains(taken, payload) {
			t.Fatalf("lost %s\nis %v\nwas %v", payload, list, m.waits)
		}
	}
	if i != len(list) {
		t.Fatalf("more waits than was pushed\nis %v\nwas %v", list, m.waits)
	}
	m.waits = list
}

func (m *uniqueModel) push(t *rapid.T) {
	payloads := rapid.SliceOfN(rapid.Custom(m.payload), 1, 3).Draw(t, "payloads")
	reply, err := m.store.PushUnique(m.ctx, "q", false, bytesOf(payloads...)...)
	m.ok(t, err)
	for i, p := range payloads {
		// Of a short queue it is always known whether an equal job waits.
		if reply.Pushed[i] == slices.Contains(m.waits, p) && (!m.far || !m.touched) {
			t.Fatalf("pushed %v: %s, while there wait %v", reply.Pushed[i], p, m.waits)
		}
		if reply.Pushed[i] {
			m.waits = append(m.waits, p)
		}
	}
}

func (m *uniqueModel) reserve(t *rapid.T) {
	req := store.ExchangeRequest{Proc: "p1", Master: "m", Queues: []store.Queue{{Name: "q", Unique: true}}}
	for range rapid.IntRange(1, 3).Draw(t, "wants") {
		m.number++
		req.Wants = append(req.Wants, store.Want{Token: fmt.Sprint(m.number), Worker: "w"})
	}
	reply, err := m.store.Exchange(m.ctx, req)
	m.ok(t, err)
	if m.alone && len(reply.OutOfStep) > 0 {
		t.Fatal("it was healed, and no stranger had touched it")
	}
	m.held = append(m.held, reply.Jobs...)
	// Healing comes before the pop; what it drops stands behind its equal.
	var taken []string
	for _, job := range reply.Jobs {
		for len(m.waits) > 0 && m.waits[0] != string(job.Payload) && slices.Contains(taken, m.waits[0]) {
			m.waits = m.waits[1:]
		}
		if len(m.waits) == 0 || m.waits[0] != string(job.Payload) {
			t.Fatalf("reserved %s of %v", job.Payload, m.waits)
		}
		m.waits = m.waits[1:]
		taken = append(taken, string(job.Payload))
	}
	m.sync(t, taken...)
}

func (m *uniqueModel) end(t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip()
	}
	job := m.held[0]
	m.held = m.held[1:]
	kind := rapid.SampledFrom([]store.Kind{store.Done, store.Requeued, store.Returned}).Draw(t, "kind")
	reply, err := m.store.Exchange(m.ctx, store.ExchangeRequest{Proc: "p1", Completions: []store.Completion{{Job: &job, Kind: kind}}})
	m.ok(t, err)
	if kind == store.Done {
		return
	}
	waited := slices.Contains(m.waits, string(job.Payload))
	dropped := len(reply.Duplicates) == 1
	switch {
	case waited != dropped && (dropped || !m.far):
		t.Fatalf("%c %s: duplicates %v, while there wait %v", kind, job.Payload, reply.Duplicates, m.waits)
	case dropped:
	case kind == store.Requeued:
		m.waits = append(m.waits, string(job.Payload))
	default:
		m.waits = append([]string{string(job.Payload)}, m.waits...)
	}
}

func (m *uniqueModel) dequeue(t *rapid.T) {
	payload := m.payload(t)
	m.touched = m.touched || !m.alone // its healing ends
	_, err := m.store.Dequeue(m.ctx, "q", func(p []byte) bool { return string(p) == payload }, nil)
	m.ok(t, err)
	m.waits = slices.DeleteFunc(m.waits, func(p string) bool { return p == payload })
}

func (m *uniqueModel) retry(t *rapid.T) {
	payload := m.payload(t)
	m.ok(t, m.redis.RPush(m.ctx, m.key[:len(m.key)-len("queue:q")]+"failed", payload).Err())
	var targets store.FailedTargets
	targets.Add(0, []byte(payload))
	err := m.store.EditFailed(m.ctx, store.FailedWork{
		List: "failed", Targets: &targets, Remove: true,
		Edit: func(record []byte) store.FailedEdit {
			return store.FailedEdit{Remove: true, Queue: "q", Payload: record, Unique: true}
		},
		Done: func(_ []byte, _ store.FailedEdit, what store.FailedOutcome) {
			if dropped := what == store.FailedDuplicate; dropped != slices.Contains(m.waits, payload) && (dropped || !m.far) {
				t.Fatalf("retried %s: %c, while there wait %v", payload, what, m.waits)
			}
			if what == store.FailedDone {
				m.waits = append(m.waits, payload)
			}
		},
	})
	m.ok(t, err)
}

func (m *uniqueModel) removeQueue(t *rapid.T) {
	_, err := m.store.RemoveQueue(m.ctx, "q", rapid.Bool().Draw(t, "keep"))
	m.ok(t, err)
	m.waits, m.touched = nil, false
}

// even: as long as no stranger comes, the lengths match, with the jobs counted in that were
// put beside their equals.
func (m *uniqueModel) even(t *rapid.T) {
	if m.touched {
		return
	}
	pipe := m.redis.Pipeline()
	jobs, times, members := pipe.LLen(m.ctx, m.key), pipe.LLen(m.ctx, m.key+":start_at"), pipe.SCard(m.ctx, m.key+":uniqueue")
	twins := pipe.HGet(m.ctx, m.key[:len(m.key)-len("queue:q")]+"resqued:twins:q", "\x00")
	_, err := pipe.Exec(m.ctx)
	m.ok(t, err)
	more, _ := twins.Int64() // 0 of a key that is not there
	if jobs.Val() != times.Val() || jobs.Val() != members.Val()+more {
		t.Fatalf("%d jobs, %d times, %d members, %d twins", jobs.Val(), times.Val(), members.Val(), more)
	}
}

// strange is what programs do that do not know the companions.
func (m *uniqueModel) strange(t *rapid.T) {
	m.touched = true
	set, times := m.key+":uniqueue", m.key+":start_at"
	payload := m.payload(t)
	switch rapid.SampledFrom([]string{"rpush", "lpush", "lpop", "lrem", "sadd", "srem", "set", "times", "time", "all"}).Draw(t, "what") {
	case "rpush":
		m.ok(t, m.redis.RPush(m.ctx, m.key, payload).Err())
		m.waits = append(m.waits, payload)
	case "lpush":
		m.ok(t, m.redis.LPush(m.ctx, m.key, payload).Err())
		m.waits = append([]string{payload}, m.waits...)
	case "lpop":
		m.ok(t, m.redis.LPop(m.ctx, m.key).Err())
		m.waits = m.waits[min(1, len(m.waits)):]
	case "lrem":
		m.ok(t, m.redis.LRem(m.ctx, m.key, 0, payload).Err())
		m.waits = slices.DeleteFunc(m.waits, func(p string) bool { return p == payload })
	case "sadd":
		m.ok(t, m.redis.SAdd(m.ctx, set, payload).Err())
	case "srem":
		m.ok(t, m.redis.SRem(m.ctx, set, payload).Err())
	case "set":
		m.ok(t, m.redis.Del(m.ctx, set).Err())
	case "times":
		m.ok(t, m.redis.Del(m.ctx, times).Err())
	case "time":
		m.ok(t, m.redis.RPush(m.ctx, times, 1700000000).Err())
	case "all":
		m.ok(t, m.redis.Del(m.ctx, m.key).Err())
		m.waits = nil
	}
}

func (m *uniqueModel) step(t *rapid.T) {
	m.touched = true // while a queue is healed some equal jobs may come in
	_, _, err := m.store.Step(m.ctx, "q")
	m.ok(t, err)
	m.sync(t)
}

// settled: after a repair the companions are what the queue says.
func (m *uniqueModel) settled(t *rapid.T) {
	_, err := m.store.RepairUnique(m.ctx, "q")
	m.ok(t, err)
	m.sync(t)
	members, err := m.redis.SMembers(m.ctx, m.key+":uniqueue").Result()
	m.ok(t, err)
	times, err := m.redis.LLen(m.ctx, m.key+":start_at").Result()
	m.ok(t, err)
	list := slices.Sorted(slices.Values(m.waits))
	slices.Sort(members)
	if !slices.Equal(list, members) || int(times) != len(list) {
		t.Fatalf("%d times, members\n%v\nof\n%v", times, members, list)
	}
	if len(slices.Compact(list)) != len(members) {
		t.Fatalf("equal jobs wait: %v", m.waits)
	}
	m.touched = false
	m.even(t)
}

// run is one sequence.
func (m *uniqueModel) run(t *rapid.T) {
	m.ok(t, m.store.Register(m.ctx, store.Registration{Proc: "p1", Workers: []string{"w"}, Started: time.Now().String()}))
	actions := map[string]func(*rapid.T){
		"push": m.push, "push again": m.push, "reserve": m.reserve, "end": m.end, "end again": m.end,
		"dequeue": m.dequeue, "retry": m.retry, "remove": m.removeQueue,
		"strange": m.strange, "strange again": m.strange, "step": m.step, "step again": m.step, "repair": m.settled,
	}
	if m.far {
		actions["retry again"], actions["push more"] = m.retry, m.push
	}
	if m.alone = m.far && rapid.Bool().Draw(t, "alone"); m.alone {
		// These give the healing something to do.
		for _, name := range []string{"strange", "strange again", "step", "step again"} {
			delete(actions, name)
		}
		actions[""] = m.even
	}
	t.Repeat(actions)
	m.settled(t)
}

// Small parts, so that a healing of a few jobs takes many steps.
func TestUniqueModel(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{
		redistest.Shared(t),
		redistest.Start(t, redistest.Without(t, "LPOS")), // as before 6.0.6
	}
	clients := []*redis.Client{servers[0].Client(t), servers[1].Client(t)}
	number := 0
	base := redistest.Namespace(t)
	rapid.Check(t, func(rt *rapid.T) {
		number++
		ns := fmt.Sprintf("%s-%d", base, number)
		which := rapid.IntRange(0, 1).Draw(rt, "server")
		server, client := servers[which], clients[which]
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns})
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		far := rapid.Bool().Draw(rt, "far")
		changes := []string{"local part = 1000 ", "local part = 3 "}
		if far {
			changes = farApart
		}
		if err := storetest.Alter(s.Redis(), "unique", changes...); err != nil {
			rt.Fatal(err)
		}
		m := &uniqueModel{store: s, redis: client, ctx: t.Context(), key: ns + ":queue:q", far: far}
		m.run(rt)
	})
}

// uniqueMutants are defects of how equal jobs are told apart in a long unique queue.
var uniqueMutants = []storetest.Mutant{
	{"a member is believed where a job is lost by it", "unique", `if not sure then return true end`, `if true then return true end`},
	{"a job that was put beside its equal is not noted", "unique", `if likely then twins.note(key, payload) end`, ``},
	{"the member goes though an equal job is left", "unique", `if not left then call('SREM', key .. ':uniqueue', payload) end`, `call('SREM', key .. ':uniqueue', payload)`},
	{"a job is the second of itself", "unique", `if at < 0 or at >= index then return false end`, ``},
	{"the place of a first one is believed", "unique", `if call('LINDEX', key, at) == payload then return true end`, `if true then return true end`},
	{"a walk that ends takes the twins with it", "unique", `h.second and fresh or other, fresh)`, `fresh, other)`},
	{"a time stays of a job that was dropped", "unique", `if starts then call('LREM', starts, from < n / 2 and holes or -holes, hole) end`, ``},
	{"what was dropped leaves a hole", "unique", `call('LREM', key, from < n / 2 and holes or -holes, hole)
    if starts`, `if starts`},
}

func twinSequence(r *storetest.Rig, t *rapid.T) {
	r.Redis.FlushDB(r.Ctx)
	m := &uniqueModel{store: r.Store, redis: r.Redis, ctx: r.Ctx, key: storetest.Space + "queue:q", far: true}
	m.run(t)
}

// TestUniqueModelFindsDefects is TestModelFindsDefects for long unique queues.
func TestUniqueModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: uniqueMutants, Prepare: storetest.OnRig(twinSequence, farApart...), Shortcuts: shortcuts}
	defects.Find(t)
}
