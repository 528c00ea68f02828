package longstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestLongModel drives the scripts of long jobs on a real Redis by random steps, together
// with the scripts that move payloads: exchange, recover, due. After each step the whole
// database must be what a simple model says, and beyond that
//
//	at most one slice of a run is running, under a fence larger than any before;
//	who does not run the slice that counts changes nothing, nor does what is refused;
//	of the runs of a kind at most one waits or runs, and that is the newest;
//	the payload of the next slice of a run that waits or runs is in one place: a queue,
//	in flight, delayed, or set apart;
//	however often one more run is asked for, one follows.
//
// Each sequence ends with a drain: every run comes to its end, and when those are
// forgotten nothing is left of them.
//
// The steps are in model_enqueue_test.go (what clients do), model_slices_test.go
// (what worker processes do), model_faults_test.go (what happens to them) and
// model_time_test.go (what happens over time); model_trouble_test.go makes the
// server refuse them. model_runs_test.go is the life of a run, and
// model_check_test.go compares. mutants_test.go shows that the model finds what it
// is to find. `make model` runs far more sequences.
func TestLongModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, 1, 3, longSequence, longSights)
}

// longSights are what a run has to come across, or it proves nothing.
var longSights = []string{
	"begin GONE", "begin OVER", "begin STALE", "begin BUSY", "begin LOST", "begin LEASE", "begin BEHIND", "begin OK", "begun again",
	"save GONE", "save OVER", "save SUPERSEDED", "save LEASE", "save OK", "ended twice",
	"cancel OVER", "cancel ENDING", "cancel OK", "pause OVER", "pause ENDING", "pause OK", "resume OVER", "resume RUNS", "resume MOVED", "resume OK",
	"begin PAUSED", "died while it paused", "goes on that was parked", "lost while it paused", "again PAUSED",
	"again OVER", "again MOVED", "again ENDING", "again NEWER", "again OK",
	"one more asked for twice", "one more asked for of a run that has not begun", "one more", "superseded", "died", "died after progress", "recovered in parts", "lost", "found again", "set apart",
	"waited", "late completion", "lock taken", "lock taken over", "forgotten", "full", "right missing", "wrong type",
}

// longModel is what a sequence knows of the database.
type longModel struct {
	*storetest.Rig
	now    storetest.Snapshot // the database after the last step
	before int64              // when the last step began; now it has ended, ms
	number int

	runs    map[string]*longRun
	order   []string          // uuids
	current map[string]string // kind → newest run
	queues  map[string][]string
	apart   map[string][]string
	delayed map[string]waiting // by payload
	locks   map[string]*hand
	failed  int
	procs   []*longProc
	hands   []*hand // those with a record, and some that have lost theirs
	fenced  int64   // the beginning of the sequence, µs
	// forgetting: whatever a run is by now, it is forgotten.
	forgetting bool
}

// longRun is a run as it must be. hash and state are what Redis has, but for times.
type longRun struct {
	uuid, kind, class, first, again string

	hash, state map[string]string
	times       map[string]span // fields of the hash
	score       span            // when it was seen, or when it is to be forgotten

	slice, fence, closed int64
	owner                *hand
	behind               *hand // of the run before
	deaths               int
	moved, rerun         bool
	paused, parked       bool
	lost                 bool // its payload was thrown away
	copied               bool // or there may be others
}

func (r *longRun) status() string { return r.hash["status"] }
func (r *longRun) active() bool   { return r.status() == "queued" || r.status() == "running" }

// set writes a field whose value is known.
func (r *longRun) set(field string, value any) { r.hash[field] = fmt.Sprint(value) }

// park has a run wait for its resumption, its payload nowhere.
func (r *longRun) park() {
	r.parked, r.lost, r.score = true, false, never
	r.set("parked", 1)
}

// pauses ends a pause.
func (r *longRun) unpause() {
	r.paused, r.parked = false, false
	delete(r.times, "paused")
	delete(r.hash, "parked")
}

// never is the sign of life of a run that is parked.
var never = span{9e15, 9e15}

// span is a time that lies between two, ms.
type span struct{ from, to int64 }

func (s span) plus(d time.Duration) span {
	return span{s.from + d.Milliseconds(), s.to + d.Milliseconds()}
}
func (s span) has(at int64) bool { return s.from <= at && at <= s.to }

// waiting is a payload that waits for its time.
type waiting struct {
	queue string
	due   span
}

// longProc is a worker process.
type longProc struct {
	name   string
	past   bool // its lease has expired
	fenced bool // its lease was ended
	next   int
}

// hand is a job in the hands of a process, with what that knows of it.
type hand struct {
	proc          *longProc
	token, queue  string
	payload, uuid string
	slice         int64 // in the id of the payload
	there         bool  // its record is in flight
	reserved      store.Reserved
	kind          string  // of the run whose slice it has begun
	begun         int64   // the slice that it has begun
	fences        []int64 // the last one counts
	running       bool    // its code runs, for all that Redis has told it
	verdict       byte    // what it has to tell Redis of its record: d(one), r(equeue), 0: nothing yet
	last          *longstore.Save
}

func (h *hand) name() string { return storetest.Owner(h.proc.name, h.token) }

// fence is that of what it has begun last.
func (h *hand) fence() int64 {
	if len(h.fences) == 0 {
		return 0
	}
	return h.fences[len(h.fences)-1]
}

func (h *hand) run() store.RunName { return store.RunName{Proc: h.proc.name, Token: h.token} }

// GoString is what rapid prints of a sequence that fails.
func (h *hand) GoString() string { return h.name() + " " + h.payload }

// GoString is as above.
func (p *longProc) GoString() string { return p.name }

// longSequence runs one model from an empty database to an empty database.
func longSequence(r *storetest.Rig, t *rapid.T) {
	storetest.Must(t, r.Redis.ConfigSet(r.Ctx, "maxmemory", "0").Err()) // the last sequence may have failed
	storetest.Must(t, r.Redis.FlushDB(r.Ctx).Err())
	r.Rights(t, "+@all")
	m := &longModel{
		Rig: r, runs: map[string]*longRun{}, current: map[string]string{}, queues: map[string][]string{}, apart: map[string][]string{},
		delayed: map[string]waiting{}, locks: map[string]*hand{}, fenced: time.Now().UnixMicro() - 1000,
	}
	for range 3 {
		m.birth(t)
	}
	m.now = m.Look(t)
	steps := map[string]func(*rapid.T){
		"add": m.add, "cancel": m.cancel, "again": m.again, "pause": m.pause, "resume": m.resume, "resume 2": m.resume,
		"take": m.take, "begin": m.begin, "start": m.start, "start 2": m.start, "start 3": m.start, "save": m.save, "save 2": m.save, "save 3": m.save,
		"complete": m.complete, "complete 2": m.complete, "work": m.work, "work 2": m.work,
		"crash": m.crash, "crash 2": m.crash, "lease": m.lease, "time": m.timePasses, "sweep": m.sweep, "due": m.due, "lock": m.lock, "lock 2": m.lock, "forget": m.forget,
		"duplicate": m.duplicate, "duplicate 2": m.duplicate, "lose": m.lose, "set apart": m.setApart, "clock": m.clock,
		"": m.check,
	}
	if rapid.Bool().Draw(t, "in peace") {
		for _, step := range []string{"duplicate", "duplicate 2", "lose", "set apart", "clock"} {
			delete(steps, step)
		}
	}
	t.Repeat(steps)
	t.Repeat(steps)
	m.drain(t)
}

// birth registers a process.
func (m *longModel) birth(t *rapid.T) *longProc {
	m.number++
	p := &longProc{name: fmt.Sprintf("p%d", m.number)}
	storetest.Must(t, m.Store.Register(m.Ctx, store.Registration{Proc: p.name, Workers: []string{p.name + ":1:q"}, Started: "now"}))
	m.procs = append(m.procs, p)
	return p
}

// begins notes the time before a step, passed is when it was done.
func (m *longModel) begins()      { m.before = time.Now().UnixMilli() }
func (m *longModel) passed() span { return span{m.before, time.Now().UnixMilli()} }

// any returns one of the runs, nil = there is none.
func (m *longModel) anyRun(t *rapid.T) *longRun {
	if len(m.order) == 0 {
		return nil
	}
	return m.runs[rapid.SampledFrom(m.order).Draw(t, "run")]
}

// anyHand returns one for which want is true.
func (m *longModel) anyHand(t *rapid.T, want func(h *hand) bool) *hand {
	var list []*hand
	for _, h := range m.hands {
		if want(h) {
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		t.Skip("nobody")
	}
	return rapid.SampledFrom(list).Draw(t, "hand")
}

// prune forgets the oldest hands that have lost their record: a few do.
func (m *longModel) prune() {
	late := 0
	for _, h := range slices.Backward(slices.Clone(m.hands)) {
		if h.there {
			continue
		}
		if late++; late > 3 {
			m.hands = slices.DeleteFunc(m.hands, func(other *hand) bool { return other == h })
		}
	}
}
