package check

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Conservation is C1 at the end: every pushed job is done, failed, still in Redis or taken by a
// foreign worker, and all jobs are known.
func Conservation(h *History) Result {
	r := Result{Name: "C1 conservation"}
	failed := map[string]int{}
	for _, f := range h.Failed {
		failed[f.ID]++
		if h.Pushes[f.ID] == nil && h.Schedules[f.ID] == nil {
			r.fail(nil, "failed holds a job that was never pushed: %q", f.ID)
		}
	}
	for id, places := range h.Places {
		if h.Pushes[id] == nil && h.Schedules[id] == nil && !h.slice(id) {
			r.fail(nil, "%s hold %q, which was never pushed", strings.Join(places, ", "), id)
		}
	}
	var pushed, ambiguous, landed, lost, byRedis int
	var ended, atMost int64
	maybe := h.MaybeTaken
	for _, p := range sorted(h.Pushes) {
		r.Looked++
		done, places := h.Done(p.ID), len(h.Places[p.ID])
		there := failed[p.ID] + places
		if done || h.Taken[p.ID] {
			there++
		}
		if len(p.More) > 0 {
			missing, gone, least, most := h.several(p, there-min(there, btoi(done || h.Taken[p.ID])))
			if missing > 0 {
				lost += missing
				r.fail([]string{p.ID}, "%d copies of %s (queue %s, unique: %v, pushed from %s on, %d runs) are lost", missing, p.ID, p.Queue,
					p.Unique, seconds(p.Tried), len(h.byID[p.ID]))
			}
			byRedis += gone
			if !h.Forgotten[p.ID] {
				ended += least
			}
			atMost += most + int64(failed[p.ID]) // which copy failed, and whether it had ended before, is unknown
			pushed++
			continue
		}
		if done && !h.Taken[p.ID] && !h.Forgotten[p.ID] || failed[p.ID] > 0 {
			ended++ // foreign workers have not counted jobs that they took, although ours had begun them
			atMost++
		}
		switch p.Answer {
		case Acknowledged:
			pushed++
		case Ambiguous:
			ambiguous++
			if there > 0 {
				landed++
			}
		}
		switch {
		case p.Answer == Refused && there+len(h.byID[p.ID]) > 0:
			r.fail([]string{p.ID}, "%s was refused and is there all the same", p.ID)
		case p.Answer == Acknowledged && there == 0 && p.Queue == h.SharedQueue && maybe > 0:
			maybe--
		case p.Answer == Acknowledged && there == 0 && (h.Forgotten[p.ID] || h.lostPush(p.tries()[0])):
			byRedis++
		case p.Answer == Acknowledged && there == 0:
			lost++
			r.fail([]string{p.ID}, "%s (%s, queue %s, pushed at %s, %d runs) is lost", p.ID, p.Expect, p.Queue,
				seconds(p.Answered), len(h.byID[p.ID]))
		case failed[p.ID] > 1:
			r.fail([]string{p.ID}, "%s failed %d times", p.ID, failed[p.ID])
		case places > 1 || places == 1 && (failed[p.ID] > 0 || h.Taken[p.ID]):
			r.fail([]string{p.ID}, "%s is in several places: %s, failed %d times, taken: %v", p.ID,
				strings.Join(h.Places[p.ID], ", "), failed[p.ID], h.Taken[p.ID])
		}
	}
	r.note("%d pushed, %d ambiguous of which %d landed, %d taken by others, %d failed, %d lost",
		pushed, ambiguous, landed, len(h.Taken), len(h.Failed), lost)
	if len(h.Losses) > 0 || len(h.Emptied) > 0 {
		r.note("%d lost by redis, which was emptied %d times and lost %s of writes", byRedis, len(h.Emptied), h.lostSpan())
	}
	retried, maybeRetried := h.retried()
	for _, count := range []func() (int64, int64){h.retried, h.ticked, h.sliced} {
		some, more := count()
		ended += some
		atMost += more
	}
	if drift := h.drift(); h.Processed < ended-drift || h.Processed > atMost+drift {
		r.fail(nil, "stat:processed is %d, but %d to %d jobs have ended (of %d redis may have lost the count)", h.Processed, ended, atMost, drift)
	}
	if n := int64(len(h.Failed)); h.FailedStat < n+retried || h.FailedStat > n+maybeRetried {
		r.fail(nil, "stat:failed is %d, but %d jobs have failed, and %d to %d times one ran again", h.FailedStat, n, retried, maybeRetried)
	}
	return r
}

// Snapshot holds where jobs were at one instant between From and To.
type Snapshot struct {
	From, To time.Duration
	// Places counts the jobs in queues, in flight and delayed.
	Places map[string]int
	// Failed and Taken are the jobs in these lists since the beginning.
	Failed, Taken map[string]bool
	// Unique lists inconsistencies of unique queues.
	Unique []string
}

// Instant is C1 in a snapshot: no job is in two places, and none of the given ones is missing.
// maybe counts foreign pops without an answer yet.
func Instant(h *History, s Snapshot, pushes []*Push, maybe int) []Violation {
	var r Result
	h.longPlaces(&r, s)
	for id, n := range s.Places {
		if h.Schedules[id] != nil {
			continue // equal jobs of several ticks
		}
		p := h.Pushes[id]
		if p != nil && len(p.More) > 0 {
			if n > 1+len(p.More) {
				r.fail([]string{id}, "at %s %s was in %d places and pushed %d times", seconds(s.To), id, n, 1+len(p.More))
			}
			continue
		}
		if n > 1 || s.Failed[id] || s.Taken[id] {
			r.fail([]string{id}, "at %s %s was in %d places, failed: %v, taken: %v", seconds(s.To), id, n, s.Failed[id], s.Taken[id])
		}
	}
	for _, p := range pushes {
		if p.Answer != Acknowledged || p.Answered > s.From || s.Places[p.ID] > 0 || s.Failed[p.ID] || s.Taken[p.ID] {
			continue
		}
		if h.ends(p.ID, s.To) > 0 || h.Taken[p.ID] || h.Forgotten[p.ID] || h.lostPush(p.tries()[0]) {
			continue
		}
		if p.Queue == h.SharedQueue && maybe > 0 {
			maybe--
			continue
		}
		r.fail([]string{p.ID}, "at %s %s (%s, queue %s) was in no place", seconds(s.To), p.ID, p.Expect, p.Queue)
	}
	for _, what := range s.Unique {
		r.fail(nil, "at %s %s", seconds(s.To), what)
	}
	return r.Violations
}

// Repeats is C4: a job runs a second time only if something interrupted its first run.
func Repeats(h *History) Result {
	r := Result{Name: "C4 repeats"}
	causes := map[string]int{}
	for id, runs := range h.byID {
		if h.Schedules[id] != nil {
			continue // see Ticks
		}
		r.Looked++
		p := h.Pushes[id]
		if p != nil && len(p.More) > 0 {
			// The copies look the same.
			_, most := p.copies(always)
			for _, run := range runs {
				if cause := h.whyAgain(run, runs[len(runs)-1]); cause != "" {
					causes[cause]++
					most++
				}
			}
			if len(runs) > most {
				r.fail([]string{id}, "%d runs of %d copies of %s have no reason", len(runs)-most, 1+len(p.More), id)
			}
			continue
		}
		for i := 1; i < len(runs); i++ {
			cause := h.whyAgain(runs[i-1], runs[i])
			if cause == "" && p != nil && p.Attempts > 0 {
				cause = h.whyRetried(p, runs[i-1], runs[i])
			}
			if cause == "" {
				r.fail([]string{id}, "%s ran again at %s in %s without a reason; before at %s in %s (%s)", id,
					seconds(runs[i].At), runs[i].Proc, seconds(runs[i-1].At), runs[i-1].Proc, outcome(runs[i-1]))
				continue
			}
			causes[cause]++
		}
	}
	for _, cause := range keys(causes) {
		r.note("%d after %s", causes[cause], cause)
	}
	return r
}

// dying is how long a process may run other jobs after one has crashed it: a panic prints stacks
// first.
const dying = 2 * time.Second

func (h *History) whyAgain(before, again *Run) string {
	if before.Outcome == ledger.Requeue {
		return "a requeue"
	}
	if cause := h.whyLost(before, again); cause != "" {
		return cause
	}
	if cause := h.runnerDeath(before, again.At); cause != "" {
		return cause
	}
	if at, ok := h.died[before.Proc]; ok && at >= before.At-dying && at <= again.At {
		return "the death of its process"
	}
	// A command may write to the ledger a moment after its process was killed.
	if f, ok := h.explains(before.Proc, before.At-500*time.Millisecond, again.At, Kills|Fences|Freezes); ok {
		return f.Kind
	}
	// A process frozen with a job in transit to a thread or a runner may begin it when it
	// continues.
	if f, ok := h.explains(again.Proc, again.At, again.At, Freezes); ok {
		return f.Kind
	}
	if h.rolledBack(before) {
		return "writes that redis lost"
	}
	// A process that must be killed does not wait for an unavailable Redis to record its other
	// ended jobs.
	if at, ok := h.Killed[before.Proc]; ok && at >= before.At && at <= again.At {
		if f, ok := h.explains(before.Proc, before.Last, at, Disturbs); ok {
			return "a kill during " + f.Kind
		}
	}
	// A killed job that does not stop ends its process. Jobs begun after the kill were not told
	// to stop, and run again.
	if at, ok := h.Killed[before.Proc]; ok && at >= before.At && at <= again.At && h.killedBefore(before) {
		return "the end of a process for another job that was killed"
	}
	// A process without processor time for seconds looks like one that hangs.
	if at, ok := h.Silent[before.Proc]; ok && at >= before.At && at <= again.At && h.starved(at-3*time.Second, at) {
		return "a machine that had too much to do"
	}
	return ""
}

// killedBefore reports whether the process of a run was told to kill its jobs before the run began.
func (h *History) killedBefore(r *Run) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool {
		if a := f.Aborted; a != nil {
			return a.From <= r.At && slices.Contains(a.Procs, r.Proc)
		}
		return f.Effect&Fails != 0 && f.From <= r.At && slices.Contains(f.Procs, r.Proc)
	})
}

// whyLost returns what explains that a run was stopped because of its lock or limit, so that the job runs
// again. A stopped command notes nothing, so without an outcome it may be one.
func (h *History) whyLost(before, again *Run) string {
	until := before.Ended + time.Second
	switch {
	case before.Outcome == ledger.Lost:
	case before.Outcome == "" && (before.Lock != "" || before.Limits != nil):
		until = again.At
	default:
		return ""
	}
	if f, ok := h.explains(before.Proc, before.At-time.Second, until, Disturbs); ok {
		return "a lock lost in " + f.Kind
	}
	if before.Outcome == ledger.Lost && h.starved(before.At-2*time.Second, until) {
		return "a lock lost on a machine that had too much to do"
	}
	if before.Outcome == ledger.Lost && h.emptied(before) {
		return "a lock lost in a redis that lost everything"
	}
	return ""
}

// lockLost is the exception of a job that failed because its lock was lost. No job does: they
// run again.
const lockLost = "Resqued::LockLost"

// deaths counts the runs of a job during which its process died.
func (h *History) deaths(id string) (all, own int) {
	runs := h.byID[id]
	for i, r := range runs {
		until := r.Last + time.Minute
		if i+1 < len(runs) {
			until = runs[i+1].At
		}
		at, suicide := h.died[r.Proc]
		suicide = suicide && at >= r.At-dying && at <= until
		_, killed := h.explains(r.Proc, r.At, until, Kills|Fences|Freezes)
		if suicide || killed || h.runnerDeath(r, until) != "" {
			all++
		}
		if r.Outcome == ledger.Die {
			own++
		}
	}
	return all, own
}

// Failures is the part of C7 about jobs: each failed job has a reason of its own. That others in
// its process died is not one.
func Failures(h *History) Result {
	r := Result{Name: "C7 failures"}
	kinds := map[string]int{}
	beside := 0
	for _, f := range h.Failed {
		r.Looked++
		p := h.Pushes[f.ID]
		if h.Schedules[f.ID] != nil {
			if h.whyTickFailed(f) == "" {
				r.fail([]string{f.ID}, "a job of schedule %s failed as %s without a reason: %s", h.Schedules[f.ID].Name, f.Exception, f.Error)
			}
			continue
		}
		if p == nil {
			continue // Conservation reports it
		}
		why := h.whyFailed(p, f)
		if why == "" {
			r.fail([]string{f.ID}, "%s (%s) failed as %s without a reason: %s", f.ID, p.Expect, f.Exception, f.Error)
		}
		kinds[why]++
		if all, own := h.deaths(f.ID); why == "its deaths" && p.Expect != ExpectDeath && own < all {
			beside++
			r.fail([]string{f.ID}, "%s only died beside others and failed: %s", f.ID, f.Error)
		}
	}
	for _, why := range keys(kinds) {
		if why != "" {
			r.note("%d by %s", kinds[why], why)
		}
	}
	r.note("%d bystanders", beside)
	return r
}

// deathNote matches the failure record of a job that died too often.
var deathNote = regexp.MustCompile(`death (\d+) of (\d+)`)

func (h *History) whyFailed(p *Push, f Failed) string {
	if p.Expect == f.Exception && p.Expect != ExpectDeath {
		return "their own doing"
	}
	if f.Exception == lockLost {
		return ""
	}
	runs := h.byID[f.ID]
	if m := deathNote.FindStringSubmatch(f.Error); m != nil && f.Exception == ExpectDeath && m[1] == m[2] {
		most, _ := strconv.Atoi(m[2])
		if all, _ := h.deaths(f.ID); all >= most {
			return "its deaths"
		}
		// A process may die before the job's code has begun.
		if h.disturbed(Kills | Fences | Freezes | Fails) {
			return "deaths before it began"
		}
		return ""
	}
	if len(runs) == 0 {
		if h.disturbed(Fails | Kills) {
			return "a kill before they began"
		}
		return ""
	}
	if len(p.More) > 0 && slices.ContainsFunc(h.Faults, func(t Fault) bool {
		return t.Effect&(Fails|Kills|Disturbs) != 0 && t.From < f.At+2*time.Second && t.To > f.At-2*time.Second
	}) {
		return "what befell a copy"
	}
	last := runs[len(runs)-1]
	until := max(last.Last, f.At) + time.Second
	if cause := h.runnerDeath(last, until); cause != "" {
		return cause
	}
	if at, ok := h.died[last.Proc]; ok && at >= last.At-dying {
		return "the death of its process"
	}
	if fault, ok := h.explains(last.Proc, last.At-time.Second, until, Fails|Disturbs|Fences|Freezes|Kills); ok {
		return fault.Kind
	}
	return ""
}

// Waited returns how long the machine was overloaded between two instants.
func (h *History) Waited(from, to time.Duration) (d time.Duration) {
	for _, s := range h.Starved {
		d += max(0, min(s.To, to)-max(s.From, from))
	}
	return d
}

// Held returns how long between two instants the speed of daemons was unknown: the machine was
// overloaded or stopped.
func (h *History) Held(from, to time.Duration) time.Duration {
	return h.Waited(from, to) + stalled(h.Faults, from, to)
}

// starved reports whether the machine was overloaded at any time between two instants.
func (h *History) starved(from, to time.Duration) bool {
	return slices.ContainsFunc(h.Starved, func(s Span) bool { return s.From < to && s.To > from })
}

func (h *History) disturbed(effect Effect) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Effect&effect != 0 })
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func outcome(r *Run) string {
	if r.Outcome == "" {
		return "last heard of at " + seconds(r.Last)
	}
	return r.Outcome + " at " + seconds(r.Ended)
}

func sorted(pushes map[string]*Push) []*Push {
	all := make([]*Push, 0, len(pushes))
	for _, p := range pushes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Push) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func keys(m map[string]int) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
