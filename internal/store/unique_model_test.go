package store_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// uniqueModel works one unique queue with everything that resqued does to it, beside
// strangers that do not know its companions, and keeps a list of what must wait.
type uniqueModel struct {
	store *store.Store
	redis *redis.Client
	ctx   context.Context //nolint:containedctx // of the test
	key   string
	held  []store.Reserved
	// waits is the queue as it has to be.
	waits  []string
	number int

	// far: the scripts look at so few jobs that the queue is a long one to them; alone: no
	// stranger comes; touched: one has come since the last repair.
	far, alone, touched bool
}

// farApart is what makes a queue of a few jobs a long one.
var farApart = []string{
	"local near = 1000 ", "local near = 2 ", "local elements_left = 50000", "local elements_left = 6", "math.floor(elements_left / 2), 100)", "math.floor(elements_left / 2), 1)",
	"found(key, payload, n, 10000)", "found(key, payload, n, 1)", "found(key, payload, n, 25000)", "found(key, payload, n, 1)",
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

// repaired takes over what the queue is after a repair, which may have dropped jobs that stand
// behind their equals.
func (m *uniqueModel) repaired(t *rapid.T) {
	list, err := m.redis.LRange(m.ctx, m.key, 0, -1).Result()
	m.ok(t, err)
	i := 0
	for j, payload := range m.waits {
		if i < len(list) && list[i] == payload {
			i++
		} else if !slices.Contains(m.waits[:j], payload) {
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
	members, err := m.redis.SCard(m.ctx, m.key+":uniqueue").Result()
	m.ok(t, err)
	times, err := m.redis.LLen(m.ctx, m.key+":start_at").Result()
	m.ok(t, err)
	even := int(members) == len(m.waits) && int(times) == len(m.waits)
	reply, err := m.store.PushUnique(m.ctx, "q", false, bytesOf(payloads...)...)
	m.ok(t, err)
	for i, p := range payloads {
		// Into a long queue that is out of step a second one may come. A member without a job may
		// refuse one only where a stranger has left it, and the lengths are equal.
		second, refused := !even || m.touched, m.touched && (even || i > 0)
		if reply.Pushed[i] == slices.Contains(m.waits, p) && (!m.far || reply.Pushed[i] && !second || !reply.Pushed[i] && !refused) {
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
	m.held = append(m.held, reply.Jobs...)
	if len(reply.OutOfStep) > 0 || len(reply.Jobs) != min(len(req.Wants), len(m.waits)) {
		t.Fatalf("%d jobs of %v, out of step: %v", len(reply.Jobs), m.waits, reply.OutOfStep)
	}
	for i, job := range reply.Jobs {
		if m.waits[i] != string(job.Payload) {
			t.Fatalf("reserved %s of %v", job.Payload, m.waits[i:])
		}
	}
	m.waits = m.waits[len(reply.Jobs):]
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

// even: as long as no stranger comes, there is a time for each job, every member waits, and so
// equal lengths mean that the keys match. In a short queue they always do.
func (m *uniqueModel) even(t *rapid.T) {
	if m.touched {
		return
	}
	pipe := m.redis.TxPipeline()
	jobs, times, set := pipe.LRange(m.ctx, m.key, 0, -1), pipe.LLen(m.ctx, m.key+":start_at"), pipe.SMembers(m.ctx, m.key+":uniqueue")
	_, err := pipe.Exec(m.ctx)
	m.ok(t, err)
	if !slices.Equal(jobs.Val(), m.waits) {
		t.Fatalf("there wait %v, not %v", jobs.Val(), m.waits)
	}
	if len(m.waits) != int(times.Val()) || !m.far && len(m.waits) != len(set.Val()) {
		t.Fatalf("%d jobs, %d times, %d members", len(m.waits), times.Val(), len(set.Val()))
	}
	for _, member := range set.Val() {
		if !slices.Contains(m.waits, member) {
			t.Fatalf("%s is a member and does not wait: %v", member, m.waits)
		}
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

// unasked is what a daemon does: it leaves the queue where the lengths match.
func (m *uniqueModel) unasked(t *rapid.T) {
	report, err := m.store.RepairUneven(m.ctx, "q")
	m.ok(t, err)
	m.repaired(t)
	if report.Changed() {
		m.matches(t)
	}
}

// settled repairs the queue on request.
func (m *uniqueModel) settled(t *rapid.T) {
	_, err := m.store.RepairUnique(m.ctx, "q")
	m.ok(t, err)
	m.repaired(t)
	m.matches(t)
}

// matches: after a repair the companions are what the queue says.
func (m *uniqueModel) matches(t *rapid.T) {
	members, err := m.redis.SMembers(m.ctx, m.key+":uniqueue").Result()
	m.ok(t, err)
	times, err := m.redis.LRange(m.ctx, m.key+":start_at", 0, -1).Result()
	m.ok(t, err)
	list := slices.Sorted(slices.Values(m.waits))
	slices.Sort(members)
	if !slices.Equal(list, members) || len(times) != len(list) {
		t.Fatalf("times %v, members\n%v\nof\n%v", times, members, list)
	}
	if len(slices.Compact(list)) != len(members) {
		t.Fatalf("equal jobs wait: %v", m.waits)
	}
	for _, at := range times {
		if _, err := strconv.Atoi(at); err != nil {
			t.Fatalf("a time is %q", at)
		}
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
		"strange": m.strange, "strange again": m.strange, "unasked": m.unasked, "repair": m.settled, "": m.even,
	}
	if m.far {
		actions["retry again"], actions["push more"] = m.retry, m.push
	}
	if m.alone = m.far && rapid.Bool().Draw(t, "alone"); m.alone {
		delete(actions, "strange")
		delete(actions, "strange again")
	}
	t.Repeat(actions)
	m.settled(t)
}

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
		if far {
			if err := storetest.Alter(s.Redis(), "unique", farApart...); err != nil {
				rt.Fatal(err)
			}
		}
		m := &uniqueModel{store: s, redis: client, ctx: t.Context(), key: ns + ":queue:q", far: far}
		m.run(rt)
	})
}

// uniqueMutants are defects of how equal jobs are known in a long unique queue, and of the repair.
var uniqueMutants = []storetest.Mutant{
	{"a member is believed where a job is lost by it", "unique", `return not sure or found`, `return true or found`},
	{"a push into a long queue goes by its ends alone", "unique", `return not sure or found`, `return found`},
	{"a queue out of step goes by its set", "unique", `if not instep(key, n) then return`, `if false then return`},
	{"a job that was taken stays a member", "unique", `call('SREM', key .. ':uniqueue', payload)`, ``},
	{"a repair drops the first of equal jobs", "unique_repair", `call('LSET', key, from + i - 1, hole)`, `call('LSET', key, call('LPOS', key, payload), hole)`},
	{"a repair leaves equal jobs", "unique_repair", `if call('SADD', fresh, payload) == 0 then`, `if call('SADD', fresh, payload) == 2 then`},
	{"what was dropped leaves a hole", "unique_repair", `call('LREM', key, 0, hole)`, ``},
	{"a time stays of a job that was dropped", "unique_repair", `call('LREM', starts, 0, hole)`, ``},
	{"a repair adds no member", "unique_repair", `added + call('SADD', set, unpack(some))`, `added`},
	{"a repair leaves members without jobs", "unique_repair", `call('UNLINK', removed > 0 and set or fresh)
if n > 0 and removed > 0 then`, `call('UNLINK', fresh)
if false then`},
	{"a repair leaves times too many", "unique_repair", `if extra > 0 then call('LTRIM', starts, extra, -1) end`, ``},
	{"a repair leaves times too few", "unique_repair", `for i = 1, -extra, 1000 do`, `for i = 1, 0 do`},
}

// TestUniqueModelFindsDefects is TestModelFindsDefects for unique queues.
func TestUniqueModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: uniqueMutants, Shortcuts: shortcuts, Prepare: func(t *testing.T, mutant storetest.Mutant) func(*rapid.T) {
		t.Helper()
		far, changes := mutant[1] == "unique", []string(nil)
		if far {
			changes = farApart
		}
		return storetest.OnRig(func(r *storetest.Rig, t *rapid.T) {
			r.Redis.FlushDB(r.Ctx)
			m := &uniqueModel{store: r.Store, redis: r.Redis, ctx: r.Ctx, key: storetest.Space + "queue:q", far: far}
			m.run(t)
		}, changes...)(t, mutant)
	}}
	defects.Find(t)
}
