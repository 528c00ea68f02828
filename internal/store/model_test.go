package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

// model drives the scripts on a real Redis by random steps, and after each step
// compares the whole content of the namespace with what must be true:
//
//	I1 every payload that was pushed is in exactly one place;
//	I2 no two records hold the same lock, and each record's lock is its own;
//	I3 fences grow with every job that takes a lock;
//	I4 a late completion changes nothing.
type model struct {
	store  *store.Store
	redis  *redis.Client
	ctx    context.Context //nolint:containedctx // of the test
	ns     string
	pushed int
	// out counts what has left Redis for good: done, or taken by a foreign worker.
	out    []string
	held   map[string][]store.Reserved // by process, as its threads know it
	past   []store.Completion          // completions that were sent before
	dead   map[string]bool
	last   int64 // the largest fence seen
	number int
}

var modelQueues = []string{"a", "b", "c"}

func (m *model) key(name string) string { return m.ns + ":" + name }

func (m *model) procs(t *rapid.T) string {
	names := []string{"p1", "p2", "p3"}
	return rapid.SampledFrom(names).Draw(t, "proc")
}

func (m *model) queues() []store.Queue {
	return []store.Queue{{Name: "a", Locked: true}, {Name: "b", Locked: true, Cap: 2}, {Name: "c"}}
}

func (m *model) push(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	// Few arguments, so that locks collide; a number apart, so that each is known.
	m.number++
	payload := fmt.Sprintf(`{"class":"A","args":[%d],"n":%d}`, rapid.IntRange(0, 3).Draw(t, "arg"), m.number)
	if _, err := m.store.Push(m.ctx, queue, []byte(payload)); err != nil {
		t.Fatal(err)
	}
	m.pushed++
}

func (m *model) register(t *rapid.T, proc string) {
	err := m.store.Register(m.ctx, store.Registration{Proc: proc, Workers: []string{proc + ":1:q"}, Started: "now"})
	if err != nil {
		t.Fatal(err)
	}
	m.dead[proc] = false
}

// exchange ends some jobs of a process and asks for others, and now and then
// loses the reply and asks again.
func (m *model) exchange(t *rapid.T) {
	proc := m.procs(t)
	if m.dead[proc] {
		m.late(t, proc)
		return
	}
	req := store.ExchangeRequest{Proc: proc, Master: "m", Queues: m.queues()}
	for range rapid.IntRange(0, len(m.held[proc])).Draw(t, "completions") {
		job := m.held[proc][0]
		m.held[proc] = m.held[proc][1:]
		c := store.Completion{Job: &job, Kind: rapid.SampledFrom([]store.Kind{store.Done, store.Failed, store.Requeued, store.Returned}).Draw(t, "kind")}
		switch c.Kind {
		case store.Failed:
			c.Failure = []byte("F" + string(job.Payload))
		case store.Requeued:
			c.Delay = rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(t, "delay")
		case store.Done:
			m.out = append(m.out, string(job.Payload))
		}
		req.Completions = append(req.Completions, c)
	}
	for range rapid.IntRange(0, 3).Draw(t, "wants") {
		m.number++
		req.Wants = append(req.Wants, store.Want{Token: fmt.Sprint(m.number), Worker: proc + ":1:q"})
	}
	reply, err := m.store.Exchange(m.ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(reply.Applied, false) {
		t.Fatalf("a completion of a live process was not applied: %v", reply.Applied)
	}
	if rapid.Bool().Draw(t, "reply lost") {
		req.Repeat = true
		again, err := m.store.Exchange(m.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(again.Applied, true) {
			t.Fatalf("a completion was applied twice: %v", again.Applied)
		}
		if len(again.Jobs) < len(reply.Jobs) {
			t.Fatalf("held %d jobs, got back %d", len(reply.Jobs), len(again.Jobs))
		}
		reply.Jobs = again.Jobs
	}
	m.past = append(m.past, req.Completions...)
	sort.Slice(reply.Jobs, func(i, j int) bool { return reply.Jobs[i].Fence < reply.Jobs[j].Fence })
	for _, job := range reply.Jobs {
		if job.LockKey != "" {
			if job.Fence <= m.last {
				t.Fatalf("fence %d after %d", job.Fence, m.last)
			}
			m.last = job.Fence
		}
	}
	m.held[proc] = append(m.held[proc], reply.Jobs...)
}

// late: a process that was recovered, or one that repeats itself, changes nothing.
func (m *model) late(t *rapid.T, proc string) {
	before := m.snapshot(t)
	req := store.ExchangeRequest{Proc: proc, Master: "m", Queues: m.queues(), Wants: []store.Want{{Token: "late", Worker: "w"}}}
	for i := range m.held[proc] {
		req.Completions = append(req.Completions, store.Completion{Job: &m.held[proc][i], Kind: store.Done})
	}
	if _, err := m.store.Exchange(m.ctx, req); err == nil {
		t.Fatal("a fenced process was served")
	}
	if after := m.snapshot(t); !slices.Equal(before, after) {
		t.Fatalf("a fenced process changed\n%v\nto\n%v", before, after)
	}
	m.held[proc] = nil
}

func (m *model) repeatOld(t *rapid.T) {
	if len(m.past) == 0 || m.dead["p1"] {
		t.Skip()
	}
	before := m.snapshot(t)
	if _, err := m.store.Exchange(m.ctx, store.ExchangeRequest{Proc: "p1", Master: "m", Completions: m.past[max(0, len(m.past)-5):]}); err != nil {
		t.Fatal(err)
	}
	if after := m.snapshot(t); !slices.Equal(before, after) {
		t.Fatalf("old completions changed\n%v\nto\n%v", before, after)
	}
}

// crash kills a process and recovers it; now and then the recoverer is cut off
// and another one begins again.
func (m *model) crash(t *rapid.T) {
	proc := m.procs(t)
	held, _, err := m.store.Fence(m.ctx, proc, true)
	if err != nil {
		t.Fatal(err)
	}
	if !m.dead[proc] && len(held) != len(m.held[proc]) {
		t.Fatalf("%s held %d jobs, its records say %d", proc, len(m.held[proc]), len(held))
	}
	var verdicts []store.Verdict
	for _, job := range held {
		v := store.Verdict{Token: job.Token, Action: store.Requeue}
		if rapid.Bool().Draw(t, "fail") {
			v.Action, v.Failure = store.Fail, []byte("F"+string(job.Payload))
		}
		verdicts = append(verdicts, v)
	}
	part := rapid.IntRange(0, len(verdicts)).Draw(t, "cut off after")
	for _, batch := range [][]store.Verdict{verdicts[:part], verdicts, verdicts} {
		if err := m.store.Recover(m.ctx, proc, batch); err != nil {
			t.Fatal(err)
		}
	}
	m.dead[proc] = true
	if rapid.Bool().Draw(t, "comes back") {
		m.held[proc] = nil
		m.register(t, proc)
	}
}

func (m *model) foreignPop(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	payload, err := m.redis.LPop(m.ctx, m.key("queue:"+queue)).Result()
	if err == nil {
		m.out = append(m.out, payload)
	}
}

func (m *model) flushScripts(t *rapid.T) {
	if err := m.redis.ScriptFlush(m.ctx).Err(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) beat(t *rapid.T) {
	proc := m.procs(t)
	if m.dead[proc] {
		return
	}
	var jobs []store.Running
	for _, job := range m.held[proc] {
		jobs = append(jobs, store.Running{Token: job.Token, LockKey: job.LockKey})
	}
	reply, err := m.store.Beat(m.ctx, store.BeatRequest{Proc: proc, Jobs: jobs})
	if err != nil || len(reply.Lost) > 0 || len(reply.Gone) > 0 {
		t.Fatalf("beat: %+v %v", reply, err)
	}
}

func (m *model) poll(t *rapid.T) {
	if _, err := m.store.Poll(m.ctx, true, "0", nil); err != nil {
		t.Fatal(err)
	}
}

// snapshot lists every place of a payload, in one transaction, and checks the
// locks.
func (m *model) snapshot(t *rapid.T) []string {
	pipe := m.redis.TxPipeline()
	var lists []*redis.StringSliceCmd
	for _, q := range modelQueues {
		lists = append(lists, pipe.LRange(m.ctx, m.key("queue:"+q), 0, -1))
	}
	failed := pipe.LRange(m.ctx, m.key("failed"), 0, -1)
	delayed := pipe.ZRange(m.ctx, m.key("resqued:delayed"), 0, -1)
	var records []*redis.MapStringStringCmd
	for _, p := range []string{"p1", "p2", "p3"} {
		records = append(records, pipe.HGetAll(m.ctx, m.key("resqued:inflight:"+p)))
	}
	locks := pipe.Keys(m.ctx, m.key("locket:job_locks:*"))
	capped := pipe.HGet(m.ctx, m.key("resqued:caps:m"), "b")
	if _, err := pipe.Exec(m.ctx); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	var places []string
	for i, list := range lists {
		for _, p := range list.Val() {
			places = append(places, "queue "+modelQueues[i]+" "+p)
		}
	}
	for _, p := range failed.Val() {
		places = append(places, "failed "+strings.TrimPrefix(p, "F"))
	}
	for _, p := range delayed.Val() {
		places = append(places, "delayed "+p[strings.Index(p, "{"):])
	}
	taken, caps := map[string]bool{}, 0
	for _, list := range records {
		for _, record := range list.Val() {
			body := record[strings.Index(record, "\n"):]
			places = append(places, "inflight "+body[strings.Index(body, "{"):])
			if i := strings.Index(body, m.key("locket")); i >= 0 {
				lock := body[i:strings.Index(body, "{")]
				lock = lock[:strings.Index(lock, "]")+1]
				if taken[lock] {
					t.Fatalf("two records hold %s", lock)
				}
				taken[lock] = true
			}
			if strings.HasPrefix(body, "\nb") {
				caps++
			}
		}
	}
	if caps > 2 {
		t.Fatalf("%d jobs of a queue with cap 2", caps)
	}
	if n, _ := capped.Int(); n != caps {
		t.Fatalf("counted %d capped jobs of %d", n, caps)
	}
	if len(locks.Val()) != len(taken) {
		t.Fatalf("locks %v, records hold %v", locks.Val(), taken)
	}
	sort.Strings(places)
	return places
}

func (m *model) check(t *rapid.T) {
	places := m.snapshot(t)
	seen := map[string]string{}
	for _, p := range places {
		payload := p[strings.Index(p, "{"):]
		if other, twice := seen[payload]; twice {
			t.Fatalf("one payload in two places: %s and %s", other, p)
		}
		seen[payload] = p
	}
	for _, payload := range m.out {
		if where, twice := seen[payload]; twice {
			t.Fatalf("an ended job is still there: %s", where)
		}
	}
	if len(places)+len(m.out) != m.pushed {
		t.Fatalf("pushed %d, ended %d, found %d:\n%s", m.pushed, len(m.out), len(places), strings.Join(places, "\n"))
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{}) // SCRIPT FLUSH is for the whole server
	client := server.Client(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		ns := fmt.Sprintf("model%d", number)
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns})
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		m := &model{store: s, redis: client, ctx: t.Context(), ns: ns, held: map[string][]store.Reserved{}, dead: map[string]bool{}}
		for _, p := range []string{"p1", "p2", "p3"} {
			m.register(rt, p)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": m.push, "push again": m.push, "exchange": m.exchange, "exchange again": m.exchange,
			"repeat old": m.repeatOld, "crash": m.crash, "foreign pop": m.foreignPop,
			"flush scripts": m.flushScripts, "beat": m.beat, "poll": m.poll,
			"": m.check,
		})
	})
}
