package store_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestFastPathIsAsTheSlowPath sends the same requests to two stores, of which one never
// takes the fast path, and wants the same answers and the same database after each.
func TestFastPathIsAsTheSlowPath(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	rapid.Check(t, w.sequence)
	t.Log(w.seen)
	if testing.Short() {
		return
	}
	for _, what := range []string{"many taken", "bounced", "full", "late", "twice", "wrong type", "more", "recovered", "died before", "set apart"} {
		require.Positive(t, w.seen[what], "never met: %s", what)
	}
}

// newTwins opens the stores. The first one has defects.
func newTwins(t *testing.T, defects ...storetest.Mutant) *twins {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	w := &twins{ctx: t.Context(), redis: server.Client(t), seen: map[string]int{}}
	for i, space := range twinSpaces {
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: strings.TrimSuffix(space, ":")})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		w.stores[i] = s
	}
	// Small replies, so that payloads need not be large to fill one, and few queues that
	// are read at a time.
	for i, s := range w.stores {
		changes := map[string][]string{
			"exchange_start": {`maxbytes = 0, 4194304`, `maxbytes = 0, 100000`},
			"exchange_first": {`math.min(empty + 8, n)`, `math.min(empty + 1, n)`},
			"exchange_take":  {`math.min(nread + 16, n)`, `math.min(nread + 2, n)`},
		}
		for _, d := range defects {
			if i == 0 {
				changes[d[1]] = append(changes[d[1]], d[2:]...)
			}
		}
		for part, change := range changes {
			require.NoError(t, storetest.Alter(s.Redis(), part, change...))
		}
	}
	require.NoError(t, storetest.Alter(w.stores[1].Redis(), "exchange_fast", `fastpath, style = fastpath == '1',`, `fastpath, style = false,`))
	return w
}

// twinSpaces are of one length, so that records are, too.
var twinSpaces = [2]string{"ta:", "tb:"}

type twins struct {
	ctx    context.Context //nolint:containedctx // of the test
	redis  *redis.Client
	stores [2]*store.Store
	seen   map[string]int

	number int
	fences [2]int64
	held   map[string][]store.Reserved // by process, with the first store's locks
	past   []store.Completion
}

var twinQueues = []store.Queue{
	{Name: "a", Locked: true}, {Name: "b"}, {Name: "c", Locked: true, Lined: true}, {Name: "d", Locked: true, Cap: 2}, {Name: "e", Locked: true, Unique: true},
}

func (w *twins) sequence(t *rapid.T) {
	w.begin(t)
	t.Repeat(map[string]func(*rapid.T){
		"push": w.push, "push 2": w.push, "push 3": w.push, "push many": w.pushMany,
		"exchange": w.exchange, "exchange 2": w.exchange, "exchange 3": w.exchange, "exchange 4": w.exchange, "exchange 5": w.exchange,
		"lock": w.lock, "type": w.wrongType, "die": w.die,
	})
}

// begin empties the database, but for two processes.
func (w *twins) begin(t *rapid.T) {
	storetest.Must(t, w.redis.ConfigSet(w.ctx, "maxmemory", "0").Err())
	storetest.Must(t, w.redis.FlushDB(w.ctx).Err())
	w.held, w.past, w.fences = map[string][]store.Reserved{"p1": nil, "p2": nil}, nil, [2]int64{}
	for proc := range w.held {
		w.register(t, proc)
	}
}

func (w *twins) register(t *rapid.T, proc string) {
	for _, s := range w.stores {
		storetest.Must(t, s.Register(w.ctx, store.Registration{Proc: proc, Workers: []string{proc + ":1:q"}, Started: "now"}))
	}
}

func (w *twins) both(t *rapid.T, do func(space string) error) {
	for _, space := range twinSpaces {
		if err := do(space); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatal(err)
		}
	}
}

// payload is often equal to another, or shares its lock.
func (w *twins) payload(t *rapid.T) string {
	n := rapid.IntRange(0, 12).Draw(t, "job")
	switch rapid.IntRange(0, 9).Draw(t, "shape") {
	case 0:
		return rapid.SampledFrom(delicate).Draw(t, "delicate")
	case 1:
		return fmt.Sprintf(`{"class": "A", "args": [ %d ]}`, n)
	case 2:
		return fmt.Sprintf(`{"class":"A","args":[%d],"x":"%s"}`, n, strings.Repeat("x", 9000))
	case 3:
		return fmt.Sprintf("\x00{\"class\":\"A\",\"args\":[%d,\"\xff\x00\n\"]}", n)
	default:
		w.number++
		return fmt.Sprintf(`{"class":"B","args":[%d,%d]}`, n, w.number)
	}
}

func (w *twins) push(t *rapid.T) {
	queue := rapid.SampledFrom(twinQueues).Draw(t, "queue").Name
	var payloads []any
	for range rapid.IntRange(1, 6).Draw(t, "jobs") {
		payloads = append(payloads, w.payload(t))
	}
	w.both(t, func(space string) error { return w.redis.RPush(w.ctx, space+"queue:"+queue, payloads...).Err() })
}

func (w *twins) pushMany(t *rapid.T) {
	queue := rapid.SampledFrom(twinQueues[:3]).Draw(t, "queue").Name
	size := rapid.SampledFrom([]int{0, 0, 0, 0, 100, 100, 9000, 40000}).Draw(t, "size")
	var payloads []any
	for range min(rapid.IntRange(5, 90).Draw(t, "jobs"), 4+200000/(size+1)) {
		w.number++
		payloads = append(payloads, fmt.Sprintf(`{"class":"C","args":[%d,"%s"]}`, w.number, strings.Repeat("y", size)))
	}
	w.both(t, func(space string) error { return w.redis.RPush(w.ctx, space+"queue:"+queue, payloads...).Err() })
}

// lock has a stranger take or free a lock.
func (w *twins) lock(t *rapid.T) {
	lock := fmt.Sprintf("locket:job_locks:A[%d]", rapid.IntRange(0, 12).Draw(t, "job"))
	free := rapid.Bool().Draw(t, "free")
	value := rapid.SampledFrom([]string{"", "resqued:p9#1"}).Draw(t, "value")
	w.both(t, func(space string) error {
		if free {
			return w.redis.Del(w.ctx, space+lock).Err()
		}
		return w.redis.Set(w.ctx, space+lock, value, time.Hour).Err()
	})
}

// wrongType has a key hold something that it should not, or nothing.
func (w *twins) wrongType(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	keys := []string{"queue:a", "queue:b", "resqued:fence", "stat:processed", "resqued:deaths", "resqued:deaths:a", "resqued:deaths:b", "resqued:died:a", "locket:queue_lock_counters", "locket:job_locks:A[1]", "resqued:seen:a", "resqued:caps:m"}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	w.both(t, func(space string) error {
		storetest.Must(t, w.redis.Del(w.ctx, space+key).Err())
		return nil
	})
	if rapid.Bool().Draw(t, "gone") {
		return
	}
	w.seen["wrong type"]++
	w.both(t, func(space string) error { return w.redis.SAdd(w.ctx, space+key, "x").Err() })
}

// repair removes keys that are not lists: no job could be recovered into them.
func (w *twins) repair(t *rapid.T) {
	w.both(t, func(space string) error {
		for _, queue := range twinQueues {
			key := space + "queue:" + queue.Name
			if w.redis.Type(w.ctx, key).Val() == "set" {
				storetest.Must(t, w.redis.Del(w.ctx, key).Err())
			}
		}
		return nil
	})
}

// die has a process die, and its jobs go back.
func (w *twins) die(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	w.repair(t)
	proc := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "process")
	action := rapid.SampledFrom([]store.Action{store.Requeue, store.Suspect}).Draw(t, "fault")
	for _, s := range w.stores {
		jobs, _, err := s.Fence(w.ctx, proc, true)
		storetest.Must(t, err)
		slices.SortFunc(jobs, func(a, b store.Reserved) int { return strings.Compare(a.Token, b.Token) })
		var verdicts []store.Verdict
		for _, j := range jobs {
			w.seen["recovered"]++
			verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: action})
		}
		storetest.Must(t, s.Recover(w.ctx, proc, verdicts))
	}
	w.held[proc] = nil
	w.register(t, proc)
}

func (w *twins) exchange(t *rapid.T) {
	proc := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "process")
	suspects := rapid.SampledFrom([]store.Suspects{store.SetApart, store.TakeSuspects}).Draw(t, "suspects")
	req := store.ExchangeRequest{Proc: proc, Master: "m", Suspects: suspects}
	kinds := []store.Kind{store.Done, store.Done, store.Done, store.Done, store.Done, store.Done, store.Failed, store.Requeued, store.Returned}
	plain := rapid.Bool().Draw(t, "plain")
	var left []store.Reserved
	for _, j := range w.held[proc] {
		if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
			left = append(left, j)
			continue
		}
		kind := store.Done
		if !plain {
			kind = rapid.SampledFrom(kinds).Draw(t, "kind")
		}
		req.Completions = append(req.Completions, store.Completion{Job: &j, Kind: kind, Failure: store.Record([]byte("F")), Mirrored: rapid.Bool().Draw(t, "mirrored")})
	}
	w.held[proc] = left
	if len(w.past) > 0 && rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		w.seen["late"]++
		req.Completions = append(req.Completions, rapid.SampledFrom(w.past).Draw(t, "which"))
	}
	if n := len(req.Completions); n > 0 && rapid.IntRange(0, 5).Draw(t, "twice") == 0 {
		w.seen["twice"]++
		req.Completions = append(req.Completions, req.Completions[rapid.IntRange(0, n-1).Draw(t, "which")])
	}
	w.past = append(w.past, req.Completions...)
	for range rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 12), rapid.IntRange(0, 100)).Draw(t, "wants") {
		w.number++
		req.Wants = append(req.Wants, store.Want{Token: strconv.Itoa(w.number), Worker: "h/0.0:1:q"})
	}
	for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "queues")[:rapid.IntRange(1, 5).Draw(t, "how many queues")] {
		req.Queues = append(req.Queues, twinQueues[i])
	}
	req.Empty = rapid.IntRange(0, 6).Draw(t, "empty") // or not
	w.send(t, req)
}

// send makes both stores the same request, and compares what has become of them.
func (w *twins) send(t *rapid.T, req store.ExchangeRequest) {
	if rapid.IntRange(0, 5).Draw(t, "full") == 0 {
		w.seen["full"]++
		storetest.Must(t, w.redis.ConfigSet(w.ctx, "maxmemory", "1").Err())
	}
	var texts [2]string
	var bases [2]storetest.Snapshot
	for i, s := range w.stores {
		one := req
		one.Completions = slices.Clone(req.Completions)
		for c := range one.Completions {
			j := *one.Completions[c].Job
			j.LockKey = strings.Replace(j.LockKey, twinSpaces[0], twinSpaces[i], 1)
			one.Completions[c].Job = &j
		}
		reply, err := s.Exchange(w.ctx, one)
		texts[i] = w.told(t, i, one, reply, err)
	}
	storetest.Must(t, w.redis.ConfigSet(w.ctx, "maxmemory", "0").Err())
	if texts[0] != texts[1] {
		t.Fatalf("fast path:\n%s\nslow path:\n%s", texts[0], texts[1])
	}
	bases[0], bases[1] = w.bases(t)
	for _, key := range slices.Sorted(maps.Keys(bases[0])) {
		// Without a usable fence no job is taken. The slow path has removed the lock of a job that is
		// gone by then; the fast path has not looked at it, and it is in no job's way.
		if slices.Equal(bases[0][key].Values, []string{"resqued:p9#1"}) && len(bases[1][key].Values) == 0 {
			continue
		}
		if !slices.Equal(bases[0][key].Values, bases[1][key].Values) {
			t.Fatalf("%s is, fast path:\n%.3000q\nslow path:\n%.3000q", key, bases[0][key].Values, bases[1][key].Values)
		}
	}
	for key := range bases[1] {
		if _, ok := bases[0][key]; !ok {
			t.Fatalf("the fast path has no %s", key)
		}
	}
}

// told is a reply as text, without what differs from one store to the other. The jobs of
// the first go to the process.
func (w *twins) told(t *rapid.T, which int, req store.ExchangeRequest, reply store.ExchangeReply, err error) string {
	if err != nil {
		return strings.ReplaceAll(err.Error(), twinSpaces[1], twinSpaces[0])
	}
	var b strings.Builder
	fmt.Fprintln(&b, reply.Applied, reply.Stuck, reply.Bounced, reply.More, reply.WrongType, reply.Duplicates, reply.OutOfStep, reply.Suspects, len(reply.Unnamed))
	for _, j := range reply.Jobs {
		if j.LockKey != "" {
			if j.Fence <= w.fences[which] {
				t.Fatalf("fence %d after %d", j.Fence, w.fences[which])
			}
			w.fences[which] = j.Fence
		}
		lock, _ := strings.CutPrefix(j.LockKey, twinSpaces[which])
		fmt.Fprintf(&b, "%s %s %s %q %v %v %d %d %.200q %d\n", j.Token, j.Queue, j.Worker, lock, j.Capped, j.Unique, j.Deaths, j.Blame, j.Payload, len(j.Payload))
		if which == 0 {
			w.held[req.Proc] = append(w.held[req.Proc], j)
		}
	}
	if len(reply.Jobs) > 5 {
		w.seen["many taken"]++
	}
	if reply.Bounced > 0 {
		w.seen["bounced"]++
	}
	if slices.ContainsFunc(reply.Jobs, func(j store.Reserved) bool { return j.Deaths > 0 }) {
		w.seen["died before"]++
	}
	if reply.Suspects > 0 {
		w.seen["set apart"]++
	}
	if reply.More {
		w.seen["more"]++
	}
	return strings.ReplaceAll(b.String(), twinSpaces[1], twinSpaces[0])
}

var times = regexp.MustCompile(`\d{10,16}`)

// bases returns what is in Redis of both, without times and fences.
func (w *twins) bases(t *rapid.T) (fast, slow storetest.Snapshot) {
	m := &model{Rig: &storetest.Rig{Redis: w.redis, Ctx: w.ctx}}
	out := [2]storetest.Snapshot{{}, {}}
	for key, e := range m.Look(t) {
		i := slices.Index(twinSpaces[:], key[:3])
		short := key[3:]
		switch {
		case strings.HasPrefix(short, "resqued:inflight:"):
			for f := 1; f < len(e.Values); f += 2 {
				head, body, _ := strings.Cut(e.Values[f], "\n")
				fields := strings.Fields(head)
				fields[5], fields[8], fields[9] = "", "", times.ReplaceAllString(fields[9], "")
				e.Values[f] = strings.Join(fields, " ") + "\n" + body
			}
		case strings.HasSuffix(short, ":start_at"), strings.HasPrefix(short, "resqued:seen:"):
			for f := range e.Values {
				e.Values[f] = times.ReplaceAllString(e.Values[f], "")
			}
		case short == "resqued:deaths", strings.HasPrefix(short, "resqued:lines:"), strings.HasPrefix(short, "resqued:ready:"), strings.HasPrefix(short, "resqued:died:"): // members and times
			for f := range e.Values {
				e.Values[f] = times.ReplaceAllString(e.Values[f], "")
			}
			slices.Sort(e.Values)
		case short == "resqued:fence", short == "resqued:procs", short == "resqued:meta", strings.HasPrefix(short, "resqued:proc:"):
			continue
		}
		for f := range e.Values {
			e.Values[f] = strings.ReplaceAll(e.Values[f], twinSpaces[1], twinSpaces[0])
		}
		out[i][short] = e
	}
	return out[0], out[1]
}
