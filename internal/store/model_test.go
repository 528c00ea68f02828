package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestModel drives the scripts on a real Redis by random steps. After each step it
// compares the whole database with what must be true:
//
//	I1  every payload that was pushed is in exactly one place, byte for byte (I9);
//	I2  no two records hold one lock, and each lock is that of a record;
//	I3  the fence of a lock grows, whatever Redis forgets;
//	I4  what comes late, or twice, changes nothing;
//	I5  what is known of locked jobs never hides a free one;
//	I8  who may have killed its process does not run beside others;
//	I10 a unique queue and its companions are in step, and nothing waits twice;
//	I11 a lock whose record is gone is free;
//	    no job leaves a queue that is paused, and every other queue is served;
//	    and the count of a job's attempts is what its last run has left, until it has ended.
//
// Each sequence ends with a drain: when all locks are released, a bounded number of
// exchanges empties every queue, and nothing is left of locks and companions.
//
// The steps are in model_jobs_test.go (pushes), model_delayed_test.go (jobs that wait for
// their time), model_steps_test.go (exchanges), model_counts_test.go (the counts of
// attempts), model_procs_test.go (processes), model_suspects_test.go (what has died with its
// process), model_pause_test.go (pauses), model_lines_test.go (lines), model_fair_test.go (turns of tenants, and a run with them), model_class_test.go (class locks) and model_strangers_test.go (all
// others); model_check_test.go has what must be true, model_drain_test.go the end.
// mutants_test.go shows that the model finds what it is to find. `make model` runs
// far more sequences.
func TestModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, 3, 10, sequence, sights)
}

// TestModelEqual is TestModel with many equal payloads, in queues and in lines.
func TestModelEqual(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, 1, 4, func(r *storetest.Rig, t *rapid.T) {
		m := newModel(t, r)
		m.equal, m.lined = true, true
		m.run(t)
	}, []string{"lined", "set apart"})
}

// sights are what a run has to come across, or it proves nothing.
var sights = []string{
	"blocked", "bounced", "repaired", "duplicate dropped", "lock taken over", "named", "delayed", "retried", "count ended", "lost lock told",
	"cut off", "right missing", "locks lost", "set apart", "ran apart", "full", "class lock taken over", "loner refused", "free job served",
	"paused", "lined",
}

// sequence runs one model from an empty database to an empty database.
func sequence(r *storetest.Rig, t *rapid.T) { newModel(t, r).run(t) }

// model is what a sequence knows of the database.
type model struct {
	*storetest.Rig
	now    storetest.Snapshot // the database after the last step
	began  int64              // epoch
	number int

	named   map[string]bool        // queues whose locks are named by the caller
	classes []string               // classes whose locks are
	bodies  map[string]body        // by payload
	count   map[storetest.Item]int // how many of a payload Redis holds, wherever
	procs   []*process

	attempts map[string]storetest.Entry // the counts of attempts, with the time to live that they got
	early    []bool                     // which completions the first of two tries has applied

	blamed map[storetest.Item]bool // what has died with its process since it last came to an end
	stray  map[storetest.Item]bool // what may have left without a word to the counts of deaths
	how    store.Suspects          // what the next request does with those

	fences  map[string]int64         // the last one of a lock
	foreign map[string]string        // locks that strangers hold, with their values
	kept    map[string]string        // locks that are kept for suspects, with their ids
	orphans map[string]string        // locks of records that were lost
	freed   map[string]bool          // locks that ended without a word to the counters
	taken   map[string]string        // what strangers took last out of a queue
	tainted map[string]bool          // queues out of which strangers took jobs
	clean   map[string]bool          // unique queues that no stranger has touched since they were in step
	starts  map[storetest.Item]int64 // when a waiting payload of a clean queue was pushed; 0: since the beginning
	past    []ending
	// ahead: the clock of the server was ahead for a while, instead of a loss of
	// what it had written.
	ahead   bool
	full    bool // the server takes no more
	untidy  bool // a right was missing without which jobs are moved, and where they waited is not forgotten
	pausing bool // queues are paused now and then
	lined   bool // locked jobs wait in lines
	fair    bool // tenants take turns
	equal   bool // many payloads are equal
}

// body is a payload before it gets its number, with what its lock is made of.
type body struct{ format, class, args string }

type ending struct {
	proc *process
	c    store.Completion
}

// process is a worker process, as it knows itself.
type process struct {
	name, master string
	fenced       bool // its lease was ended; its jobs are those not recovered yet
	jobs         map[string]*running
	late         []store.Completion // of a fenced one: what it still believes to have
	sending      [2]int64           // of each lane
}

type running struct {
	store.Reserved
	loose bool // its lock was deleted or taken
	lost  bool // its record was
	// timed: its lock has a time to live. One that was taken together with others gets that with a beat.
	timed bool
	// The class lock that it took, and whether that was deleted or taken.
	classKey, classValue string
	classLoose           bool
}

var modelQueues = []store.Queue{
	{Name: "a", Locked: true},
	{Name: "b", Locked: true, Cap: 2},
	{Name: "c"},
	{Name: "d", Locked: true, Unique: true},
	{Name: "e", Unique: true},
}

func newModel(t *rapid.T, r *storetest.Rig) *model {
	m := &model{
		Rig: r, began: time.Now().Unix() - 1,
		named: map[string]bool{}, bodies: map[string]body{}, count: map[storetest.Item]int{},
		attempts: map[string]storetest.Entry{}, blamed: map[storetest.Item]bool{}, stray: map[storetest.Item]bool{}, how: store.SetApart, fences: map[string]int64{}, foreign: map[string]string{}, kept: map[string]string{}, orphans: map[string]string{},
		freed: map[string]bool{}, taken: map[string]string{}, tainted: map[string]bool{}, clean: map[string]bool{}, starts: map[storetest.Item]int64{},
	}
	storetest.Must(t, r.Redis.ConfigSet(r.Ctx, "maxmemory", "0").Err()) // the last sequence may have failed
	storetest.Must(t, r.Redis.FlushDB(r.Ctx).Err())
	r.Rights(t, "+@all")
	for _, q := range modelQueues {
		m.clean[q.Name] = q.Unique
		storetest.Must(t, r.Redis.SAdd(r.Ctx, storetest.Space+"queues", q.Name).Err())
	}
	for _, p := range []*process{{name: "p1", master: "m1"}, {name: "p2", master: "m1"}, {name: "p3", master: "m2"}} {
		m.procs = append(m.procs, p)
		m.register(t, p)
	}
	m.ahead = rapid.Bool().Draw(t, "the clock was ahead")
	m.pausing = rapid.Bool().Draw(t, "queues are paused")
	m.lined = rapid.Bool().Draw(t, "locked jobs wait in lines")
	m.named["a"] = rapid.Bool().Draw(t, "locks of queue a are named in Go")
	if rapid.Bool().Draw(t, "locks of class G are named in Go") {
		m.classes = []string{"G"}
	}
	return m
}

// run takes random steps, and drains. A step that is there more than once comes more
// often.
func (m *model) run(t *rapid.T) { m.runWith(t, nil) }

// runWith is run with more steps.
func (m *model) runWith(t *rapid.T, more map[string]func(*rapid.T)) {
	steps := map[string]func(*rapid.T){
		"push": m.push, "push 2": m.push, "push 3": m.push, "push 4": m.push, "push 5": m.push, "push 6": m.push,
		"exchange": m.exchange, "exchange 2": m.exchange, "exchange 3": m.exchange, "exchange 4": m.exchange, "exchange 5": m.exchange,
		"alone": m.alone, "alone 2": m.alone, "repeat old": m.repeatOld, "crash": m.crash, "beat": m.beat, "poll": m.poll, "poll 2": m.poll,
		"later": m.later, "later 2": m.later, "due": m.due, "due 2": m.due,
		"serve": m.serve, "serve 2": m.serve, "serve 3": m.serve, "jam": m.jam, "jam 2": m.jam, "repair": m.repair,
		"full server": m.fullServer, "full server 2": m.fullServer, "unasked": m.unasked,
		"purge": m.purge, "dequeue": m.dequeue, "strangers": m.strangers,
		"pause": m.pause, "pause 2": m.pause,
		"acquire": m.acquire, "acquire 2": m.acquire, "refresh": m.refresh, "refresh 2": m.refresh, "extend": m.extend, "loner": m.loner,

		"foreign push": m.foreignPush, "foreign swap": m.foreignSwap, "foreign pop": m.foreignPop, "foreign remove": m.foreignRemove,
		"gem worker": m.gemWorker, "gem done": m.gemDone,
		"steal": m.steal, "expire": m.expire, "release": m.foreignRelease,
		"lose record": m.loseRecord, "lose record 2": m.loseRecord, "lose fence": m.loseFence, "flush scripts": m.flushScripts,
		"": m.check,
	}
	maps.Copy(steps, more)
	for _, family := range families {
		if !rapid.Bool().Draw(t, "with "+family[0]) {
			for _, step := range family {
				delete(steps, step)
			}
		}
	}
	t.Repeat(steps)
	t.Repeat(steps) // thirty steps each, on average
	m.drain(t)
}

// families are steps that only half of the sequences take: where everything happens at
// once, what needs a few quiet steps in a row hardly ever does.
var families = [][]string{
	{"later", "later 2", "due", "due 2"},
	{"acquire", "acquire 2", "refresh", "refresh 2", "extend", "loner"},
	{"foreign push", "foreign swap", "foreign pop", "foreign remove", "gem worker", "gem done"},
	{"steal", "expire", "release", "lose record", "lose record 2", "lose fence", "flush scripts"},
	{"jam", "jam 2", "repair", "full server", "full server 2", "unasked"},
	{"crash", "alone", "alone 2"},
	{"purge", "dequeue", "strangers"},
}

func (m *model) register(t *rapid.T, p *process) {
	p.fenced, p.jobs, p.late = false, map[string]*running{}, nil
	storetest.Must(t, m.Store.Register(m.Ctx, store.Registration{Proc: p.name, Workers: []string{p.name + ":1:q"}, Started: "now"}))
}

// heldBy returns the job that was given a lock last, unless it lost it.
func (m *model) heldBy(lock string) *running {
	for _, p := range m.procs {
		for _, job := range p.jobs {
			if job.LockKey == lock && !job.loose && !job.lost {
				return job
			}
		}
	}
	return nil
}

func (m *model) anyProcess(t *rapid.T) *process { return rapid.SampledFrom(m.procs).Draw(t, "process") }

func (m *model) anyQueue(t *rapid.T) store.Queue {
	return theQueue(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "queue"))
}

// tokens returns those of a process in a fixed order, so that a sequence can be repeated.
func (p *process) tokens() []string {
	var out []string
	for token := range p.jobs {
		out = append(out, token)
	}
	slices.Sort(out)
	return out
}

func theQueue(name string) store.Queue {
	i := slices.IndexFunc(modelQueues, func(q store.Queue) bool { return q.Name == name })
	return modelQueues[i]
}

// GoString is what rapid prints of a sequence that fails.
func (p *process) GoString() string { return p.name }

// GoString is as above.
func (b body) GoString() string { return fmt.Sprintf("%q", b.format) }
