package longstore_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// tenants is a world of long jobs that belong to tenants, with a clock of its own.
type tenants struct {
	*recurring
	f      fatal
	share  int                   // what the class says; 0 = as there is room
	served []string              // the queues from which threads take jobs
	hands  map[string]*slicehand // by process
	whose  map[string]string
	lines  map[string][]string // of tenants, as seen last
	slept  map[string]bool     // runs whose slices have waited for some time
}

// slicehand is a slice that a process has taken.
type slicehand struct {
	proc     string
	reserved store.Reserved
	slice    longstore.Slice
	begun    bool // its code runs
	over     bool // its end is saved
}

func newTenants(t *testing.T, f fatal, share int, defects ...storetest.Mutant) *tenants {
	t.Helper()
	return &tenants{recurring: newRecurring(t, defects...), f: f, share: share, hands: map[string]*slicehand{}, whose: map[string]string{}, lines: map[string][]string{}, slept: map[string]bool{}}
}

func (w *tenants) add(way longstore.Way, kind, tenant string) string {
	w.f.Helper()
	run := w.run(kind)
	run.Tenant = tenant
	added, err := w.long.AddRuns(w.t.Context(), way, []longstore.NewRun{run})
	require.NoError(w.f, err)
	if added[0].Outcome == 'n' {
		w.whose[added[0].UUID] = tenant
	}
	return added[0].UUID
}

// take reserves a slice by a process of its own; nil = none waits.
func (w *tenants) take() *slicehand {
	w.f.Helper()
	w.next++
	h := &slicehand{proc: fmt.Sprintf("p%d", w.next)}
	require.NoError(w.f, w.store.Register(w.t.Context(), store.Registration{Proc: h.proc, Workers: []string{"h/0.0:1:q"}, Started: "now", Info: map[string]string{"pid": "1"}}))
	// Its lease is not past, however the clock goes.
	require.NoError(w.f, w.redis.ZAdd(w.t.Context(), w.ns+":resqued:procs", redis.Z{Score: 9e15, Member: h.proc}).Err())
	reply, err := w.store.Exchange(w.t.Context(), store.ExchangeRequest{
		Proc: h.proc, Master: "m", Wants: []store.Want{{Token: "t", Worker: "h/0.0:1:q"}}, Queues: []store.Queue{{Name: "q"}},
	})
	require.NoError(w.f, err)
	if len(reply.Jobs) == 0 {
		w.die(h)
		return nil
	}
	h.reserved = reply.Jobs[0]
	_, rest, _ := strings.Cut(string(h.reserved.Payload), `"args":["`)
	uuid, _, _ := strings.Cut(rest, `"`)
	_, rest, _ = strings.Cut(rest, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	h.slice = longstore.Slice{UUID: uuid, Number: longstore.SliceOf(uuid, id), Run: store.RunName{Proc: h.proc, Token: "t"}, Share: w.share}
	h.slice.Queues = w.served
	if w.share == 0 {
		h.slice.Share = longstore.Adaptive
	}
	w.hands[h.proc] = h
	return h
}

// begin begins a slice, or throws its payload away.
func (w *tenants) begin(h *slicehand) {
	w.f.Helper()
	record, err := w.long.Begin(w.t.Context(), h.slice)
	if errors.Is(err, longstore.ErrBehind) {
		return // it asks again
	}
	if errors.Is(err, longstore.ErrWait) && w.share == 0 {
		// It had its turn, so it is in front, unless its payload is in its queue again.
		line := w.redis.ZRange(w.t.Context(), w.ns+":resqued:longjob:line:"+w.whose[h.slice.UUID], 0, -1).Val()
		require.LessOrEqual(w.f, slices.Index(line, h.slice.UUID), 0, "%s has stepped back behind others", h.slice.UUID)
	}
	if err != nil {
		for _, known := range []error{longstore.ErrWait, longstore.ErrOver, longstore.ErrStale, longstore.ErrBusy, longstore.ErrGone, longstore.ErrPaused} {
			if errors.Is(err, known) {
				w.complete(h, store.Completion{Kind: store.Done})
				return
			}
		}
		w.f.Fatalf("begin: %v", err)
	}
	h.begun, h.slice.Fence, h.slice.Number = true, record.Number("fence"), record.Number("slice")
}

// save saves the end of a slice; false = its run was over before.
func (w *tenants) save(h *slicehand, op longstore.Op) bool {
	w.f.Helper()
	w.next++
	further := fmt.Sprint(w.next)
	more, err := w.long.Save(w.t.Context(), longstore.Save{Slice: h.slice, Op: op, Class: "R", Queue: "q", Wait: time.Minute, Further: further})
	if errors.Is(err, longstore.ErrOver) || errors.Is(err, longstore.ErrGone) {
		return false
	}
	require.NoError(w.f, err)
	if more.Further {
		w.whose[further] = w.whose[h.slice.UUID]
	}
	if op == longstore.Waits {
		w.slept[h.slice.UUID] = true
	}
	if tenant := w.whose[h.slice.UUID]; op == longstore.Yields && !more.Paused && len(w.lines[tenant]) > 0 {
		line := w.redis.ZRange(w.t.Context(), w.ns+":resqued:longjob:line:"+tenant, 0, -1).Val()
		require.True(w.f, len(line) == 0 || slices.Contains(line, h.slice.UUID), "others stand in line, and %s goes on", h.slice.UUID)
	}
	if op != longstore.GoesOn {
		h.over, h.begun = true, false
	}
	return true
}

func (w *tenants) complete(h *slicehand, c store.Completion) {
	w.f.Helper()
	c.Job = &h.reserved
	_, err := w.store.Exchange(w.t.Context(), store.ExchangeRequest{Proc: h.proc, Master: "m", Completions: []store.Completion{c}})
	require.NoError(w.f, err)
	delete(w.hands, h.proc)
}

// die recovers a process that is found dead, whatever it has in hand.
func (w *tenants) die(h *slicehand) {
	w.f.Helper()
	_, _, err := w.store.Fence(w.t.Context(), h.proc, true)
	require.NoError(w.f, err)
	require.NoError(w.f, w.store.Recover(w.t.Context(), h.proc, []store.Verdict{{Token: "t", Action: store.Requeue}}))
	delete(w.hands, h.proc)
}

// end ends a slice in one of the ways that there are, or its process.
func (w *tenants) end(h *slicehand, op longstore.Op) {
	w.f.Helper()
	kind := store.Completion{Kind: store.Done}
	if !w.save(h, op) {
		require.NoError(w.f, w.long.Leave(w.t.Context(), h.slice))
	} else if op == longstore.Interrupted {
		kind.Kind = store.Requeued
	}
	h.begun = false
	w.complete(h, kind)
}

func (w *tenants) list(key string) []string {
	w.f.Helper()
	return w.redis.LRange(w.t.Context(), w.ns+":"+key, 0, -1).Val()
}

// check looks at everything there is between two steps.
func (w *tenants) check() {
	w.f.Helper()
	ctx, room := w.t.Context(), max(1, w.share)
	if w.share == 0 {
		room = math.MaxInt
	}
	running := map[string]int{}
	hands := map[string]bool{}
	for _, h := range w.hands {
		hands[string(h.reserved.Payload)] = true
		if tenant := w.whose[h.slice.UUID]; h.begun && tenant != "" {
			running[tenant]++
		}
	}
	for tenant, n := range running {
		require.LessOrEqual(w.f, n, room, "slices of %s run", tenant)
	}
	waiting := map[string]bool{}
	for _, payload := range w.list("queue:q") {
		waiting[payload] = true
	}
	delayed := strings.Join(w.redis.ZRange(ctx, w.ns+":resqued:delayed", 0, -1).Val(), "\n")
	lines, places := map[string][]string{}, map[string]string{}
	for _, tenant := range []string{"a", "b", "c"} {
		lines[tenant] = w.redis.ZRange(ctx, w.ns+":resqued:longjob:line:"+tenant, 0, -1).Val()
		for _, id := range lines[tenant] {
			places[id] = tenant
		}
		require.LessOrEqual(w.f, int(w.redis.SCard(ctx, w.ns+":resqued:longjob:busy:"+tenant).Val()), room, "slices of %s", tenant)
	}
	alive, parked := map[string]bool{}, map[string]bool{}
	require.NoError(w.f, w.long.Runs(ctx, func(r longstore.Record) bool {
		if status := r.Fields["status"]; status != "queued" && status != "running" {
			return true
		}
		alive[r.UUID], parked[r.UUID] = true, r.Fields["parked"] == "1"
		payload := string(longstore.Payload("R", r.UUID, r.Number("slice")))
		tenant, busy := r.Fields["tenant"], false
		require.Equal(w.f, w.whose[r.UUID], tenant)
		if tenant != "" {
			busy = w.redis.SIsMember(ctx, w.ns+":resqued:longjob:busy:"+tenant, r.UUID).Val()
		}
		switch somewhere := waiting[payload] || hands[payload] || strings.Contains(delayed, payload); {
		case places[r.UUID] != "":
			require.Equal(w.f, tenant, places[r.UUID])
			require.False(w.f, busy, "%s stands in line and has a slice", r.UUID)
		case r.Fields["parked"] == "1":
			require.False(w.f, busy, "%s is parked, and has a slice", r.UUID)
		default:
			require.True(w.f, somewhere, "%s is nowhere", payload)
			if tenant != "" && waiting[payload] && !w.slept[r.UUID] {
				require.True(w.f, busy, "%s waits, and has no slice", r.UUID)
			}
			if busy {
				require.True(w.f, waiting[payload] || hands[payload], "%s waits for some time, and has a slice", r.UUID)
			}
		}
		return true
	}))
	known, _ := w.redis.HGet(ctx, w.ns+":resqued:longjob:shares", "R").Int64()
	for tenant, line := range lines {
		if len(line) > 0 {
			busy := w.redis.SCard(ctx, w.ns+":resqued:longjob:busy:"+tenant).Val()
			require.GreaterOrEqual(w.f, busy, max(1, known), "there is room, and a line of %s", tenant)
		}
		for _, id := range line {
			require.True(w.f, alive[id], "%s is over, and stands in line", id)
		}
		// Nobody has a turn before those that stood in front of them.
		left := false
		for _, id := range w.lines[tenant] {
			switch {
			case slices.Contains(line, id):
				left = true
			case alive[id] && !parked[id]:
				require.False(w.f, left, "%s has jumped the line of %s", id, tenant)
			}
		}
		stayed := []string{}
		for _, id := range w.lines[tenant] {
			if slices.Contains(line, id) {
				stayed = append(stayed, id)
			}
		}
		// Runs that have stepped back are in front of them, new ones behind.
		require.Equal(w.f, stayed, slices.DeleteFunc(slices.Clone(line), func(id string) bool { return !slices.Contains(w.lines[tenant], id) }), "the line of %s", tenant)
	}
	w.lines = lines
}

// finish has all runs come to their end.
func (w *tenants) finish() {
	w.f.Helper()
	for _, id := range slices.Sorted(maps.Keys(w.whose)) {
		if r, err := w.long.Run(w.t.Context(), id); err == nil && r.Fields["paused"] != "" {
			require.NoError(w.f, w.long.Resume(w.t.Context(), r))
		}
	}
	for range 1000 {
		for _, proc := range slices.Sorted(maps.Keys(w.hands)) {
			h := w.hands[proc]
			switch {
			case h.over:
				w.complete(h, store.Completion{Kind: store.Done})
			case h.begun:
				w.end(h, longstore.Completed)
			default:
				w.begin(h)
			}
		}
		w.check()
		if len(w.hands) > 0 {
			continue
		}
		w.advance(2 * minute)
		_, err := w.store.MoveDue(w.t.Context(), "", nil)
		require.NoError(w.f, err)
		require.NoError(w.f, w.long.Turns(w.t.Context(), 0, 100))
		w.check()
		for w.next%3 != 0 && w.take() != nil { // several at once
			w.check()
		}
		if len(w.hands) == 0 && w.take() == nil {
			break
		}
	}
	require.Empty(w.f, w.redis.ZRange(w.t.Context(), w.ns+":resqued:longjob:active", 0, -1).Val())
	require.Empty(w.f, w.redis.Keys(w.t.Context(), w.ns+":resqued:longjob:[bl][ui][sn][ye]:*").Val(), "nobody has a slice or stands in line")
	require.Zero(w.f, w.redis.Exists(w.t.Context(), w.ns+":resqued:longjob:tenants", w.ns+":resqued:longjob:hungry", w.ns+":resqued:longjob:next", w.ns+":resqued:longjob:stepped").Val())
}

var allEnds = []longstore.Op{longstore.Yields, longstore.Yields, longstore.Yields, longstore.Waits, longstore.Interrupted, longstore.Completed, longstore.Failed}

// Whatever happens to the runs of tenants, and to the processes that have their slices, no
// tenant has more of them than it may, none is lost, no run jumps a line, and in the end
// nothing is left behind.
func TestTenantsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(c *rapid.T) { takeTurns(t, c) })
}

// tenantDefects each break one promise to tenants.
var tenantDefects = []storetest.Mutant{
	{"there is always room", "longjob_tenants", `if room and holders(prefix, tenant, room) >= room or`, `if`},
	{"whoever is in a queue may run", "begin", `if room and holders(prefix, tenant, room) >= room then`, `if false then`},
	{"who steps back stands behind", "longjob_tenants", `first and tonumber(first) - 1 or ms * 1000`, `9e15`},
	{"who has stepped back keeps the slice", "longjob_tenants", `  call('SREM', busykey(prefix, tenant), id)
  local first`, `  local first`},
	{"who yields stands in front", "longjob_tenants", `math.max(ms * 1000, tonumber(last or 0) + 1)`, `2e15 - tonumber(last or 0)`},
	{"who yields goes on", "save", `queueslice(prefix, id, tenant, queue, payload, ms)`, `append(prefix, queue, payload, ms)`},
	{"who has ended keeps the slice", "longjob_runs", `    giveup(prefix, v[1], id, ms)
  end`, `  end`},
	{"who is cancelled leaves at once", "longjob_runs", `if recorded(prefix, v[2] or '') then
    call(`, `if false then
    call(`},
	{"who has a slice stands in line", "longjob_tenants", `local function hold(prefix, tenant, id, ms)
  call('ZREM', linekey(prefix, tenant), id)`, `local function hold(prefix, tenant, id, ms)`},
	{"who waits keeps the slice", "save", `if tenant then giveup(prefix, tenant, id, ms) end`, ``},
	{"nobody is told of the room", "longjob_tenants", `  call('ZREM', linekey(prefix, tenant), id)
  turn(prefix, tenant, ms)`, `  call('ZREM', linekey(prefix, tenant), id)`},
	{"the run that follows is nobody's", "save", `tenant or '', payload, ms)`, `'', payload, ms)`},
	{"who goes on again jumps the line", "again", `queueslice(prefix, id, v[9], v[4], payload, ms)`, `append(prefix, v[4], payload, ms)`},
	{"a tenant without runs is not forgotten", "longjob_tenants", `    call('ZREM', tenantskey(prefix), tenant)
    call('SREM'`, `    call('SREM'`},
	{"who stands in line is forgotten", "begin", `stand(prefix, tenant, id, ms)`, ``},
}

func TestTenantsFindsDefects(t *testing.T) {
	t.Parallel()
	findsDefects(t, tenantDefects, takeTurns)
}

func takeTurns(t *testing.T, c *rapid.T, defects ...storetest.Mutant) {
	t.Helper()
	w := newTenants(t, c, rapid.IntRange(0, 3).Draw(c, "share"), defects...)
	if w.share > 0 {
		require.NoError(c, w.redis.HSet(t.Context(), w.ns+":resqued:longjob:shares", "R", w.share).Err())
	}
	pick := func() *slicehand {
		if len(w.hands) == 0 {
			return nil
		}
		return w.hands[rapid.SampledFrom(slices.Sorted(maps.Keys(w.hands))).Draw(c, "process")]
	}
	for range rapid.IntRange(20, 60).Draw(c, "steps") {
		switch rapid.SampledFrom([]string{"add", "add", "take", "take", "take", "go on", "go on", "go on", "go on", "go on", "cancel", "again", "pause", "resume", "die", "time", "look"}).Draw(c, "step") {
		case "add":
			kind := rapid.IntRange(0, 8).Draw(c, "kind")
			tenant := []string{"a", "a", "b", ""}[kind%4]
			if rapid.IntRange(0, 9).Draw(c, "another tenant") == 0 {
				tenant = "b"
			}
			w.add(rapid.SampledFrom([]longstore.Way{longstore.Always, longstore.Unique, longstore.Debounce}).Draw(c, "way"), fmt.Sprint("kind", kind), tenant)
		case "take":
			w.take()
		case "go on":
			h := pick()
			switch {
			case h == nil:
			case h.over:
				w.complete(h, store.Completion{Kind: store.Done})
			case !h.begun:
				w.begin(h)
			default:
				op := rapid.SampledFrom(allEnds).Draw(c, "end")
				if rapid.IntRange(0, 4).Draw(c, "only saved") > 0 || op == longstore.Interrupted {
					w.end(h, op)
				} else {
					w.save(h, op)
				}
			}
		case "cancel", "again":
			if len(w.whose) == 0 {
				continue
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.whose))).Draw(c, "run")
			if rapid.Bool().Draw(c, "cancel") {
				_ = w.long.Cancel(t.Context(), id, time.Hour)
			} else if r, err := w.long.Run(t.Context(), id); err == nil {
				_ = w.long.Again(t.Context(), r, false)
			}
		case "pause", "resume":
			if len(w.whose) == 0 {
				continue
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.whose))).Draw(c, "run")
			w.slept[id] = true // its payload may be in a queue, and others have its slice
			if rapid.Bool().Draw(c, "pause") {
				_ = w.long.Pause(t.Context(), id)
			} else if r, err := w.long.Run(t.Context(), id); err == nil {
				_ = w.long.Resume(t.Context(), r)
			}
		case "die":
			if h := pick(); h != nil {
				w.die(h)
			}
		case "time":
			w.advance(rapid.Int64Range(1, 2*minute).Draw(c, "ms"))
			_, err := w.store.MoveDue(t.Context(), "", nil)
			require.NoError(c, err)
		case "look":
			require.NoError(c, w.long.Turns(t.Context(), 0, 10))
		}
		w.check()
	}
	w.finish()
}
