package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Statuses of findings.
const (
	FindingOK   = "ok"
	FindingWarn = "warn" // it works, but may be a mistake
	FindingFail = "fail" // jobs are held up, or a promise does not hold
)

// Finding is the result of a check.
type Finding struct {
	Check string `json:"name"`
	// Status is FindingOK, FindingWarn or FindingFail.
	Status string `json:"status"`
	Text   string `json:"text"`
	// Fix is a command without the program's name if Command is true, else a sentence, or "".
	Fix     string `json:"fix,omitempty"`
	Command bool   `json:"-"`
	// Code is one of the constants Code…, or "" if all is well. docs/operations.md has runbooks.
	Code string `json:"code,omitempty"`
}

const (
	checkedLocks = 10_000
	// namedFindings is how many things of one kind are named one by one.
	namedFindings = 5
	// askew is the tolerated difference of clocks: users name times by their machine's clock.
	askew = 5 * time.Second
	// slow is a round trip at which worker processes are slowed down noticeably.
	slow = 20 * time.Millisecond
	// silent is how long a daemon may go without any heartbeat before it is reported.
	silent = store.DefaultBeatEvery * 3 / 2
	// almost is the part of a limit above which its use is reported.
	almost = 0.9
)

// Checks is what to compare Redis with.
type Checks struct {
	// Unique reports whether a queue is configured as unique.
	Unique func(queue string) bool
	// Schedules are the configured ones.
	Schedules ScheduleSources
	// Differ compares the settings of two masters; see MarkSettings.
	Differ func(usual, other string) []string
	// Throwaway says that the server's data need not outlive it, as with `resqued dev`.
	Throwaway bool
}

// checkup makes the checks. Each adds to found.
type checkup struct {
	Checks
	store *store.Store
	over  OverStore // answers for the large lists
	found []Finding
}

// say adds a finding with advice, a sentence or "".
func (c *checkup) say(code, status, advice, format string, args ...any) {
	c.found = append(c.found, Finding{Status: status, Text: fmt.Sprintf(format, args...), Fix: advice, Code: code})
}

// run adds a finding with a command that fixes it or shows more.
func (c *checkup) run(code, status, command, format string, args ...any) {
	c.found = append(c.found, Finding{Status: status, Text: fmt.Sprintf(format, args...), Fix: command, Command: true, Code: code})
}

// Findings checks the server, the daemons and what they work on, each with at least one finding.
// It fails only if the server does not answer or refuses the password. The large lists are those
// of a snapshot; nil = they are read.
func Findings(ctx context.Context, s *store.Store, of *Snapshot, checks Checks) ([]Finding, error) {
	var all []Finding
	for _, check := range []struct {
		name string
		do   func(c *checkup, ctx context.Context) error
		fine string
	}{
		{"redis", (*checkup).server, ""},
		{"daemons", (*checkup).daemons, ""},
		{"queues", (*checkup).queues, "every queue with jobs is worked"},
		{"unique", (*checkup).unique, "the keys of unique queues match"},
		{"locks", (*checkup).locks, "every lock has a holder that lives"},
		{"parked", (*checkup).parked, "the end of every job has its place"},
		{"schedules", (*checkup).schedules, "no schedule is late"},
		{"moves", (*checkup).moves, ""}, // reported only if there is one
	} {
		c := &checkup{Checks: checks, store: s, over: of.Over(s)}
		err := check.do(c, ctx)
		if err != nil && (rdb.Unreachable(err) || rdb.Unauthorized(err) || ctx.Err() != nil) {
			return all, err
		}
		if err != nil {
			what, advice := "cannot be checked", ""
			if len(c.found) > 0 {
				what = "not all of it can be checked"
			}
			if rdb.Refusal(err) == "NOPERM" {
				advice = "Give this user of Redis the rights that docs/redis-keys.md lists."
			}
			c.say(CodeUnchecked, FindingFail, advice, "%s: %s", what, Plainly(err.Error()))
		}
		if len(c.found) == 0 && check.fine != "" {
			c.say("", FindingOK, "", "%s", check.fine)
		}
		for _, f := range c.found {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

func (c *checkup) server(ctx context.Context) error {
	server, err := c.store.Server(ctx)
	if err != nil {
		return err
	}
	c.say("", FindingOK, "", "%s, answers in %s", cmp.Or(server.Version, "of an unknown version"), server.RoundTrip.Round(10*time.Microsecond))
	if server.RoundTrip > slow {
		c.say(CodeRedisFar, FindingWarn, "Each batch of jobs takes a round trip: run the daemons near the server, with more threads.",
			"the nearest of three answers took %s", server.RoundTrip.Round(time.Millisecond))
	}
	if server.Role == "slave" {
		c.say(CodeRedisReplica, FindingFail, "Let redis_url name the primary.", "it is a replica")
	}
	if server.MemoryLimit > 0 && server.Policy != "" && server.Policy != "noeviction" {
		c.say(CodeRedisEvicts, FindingFail, "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.",
			"it may throw away jobs: maxmemory is %s, maxmemory-policy %s", Size(server.MemoryLimit), server.Policy)
	}
	if server.MemoryLimit > 0 && float64(server.Memory) > almost*float64(server.MemoryLimit) {
		c.say(CodeRedisFull, FindingWarn, "Raise maxmemory, or see what takes it: redis-cli --bigkeys.",
			"%s of %s of its memory are used; when it is full pushes are refused", Size(server.Memory), Size(server.MemoryLimit))
	}
	if server.ClientLimit > 0 && float64(server.Clients) > almost*float64(server.ClientLimit) {
		c.say(CodeRedisConnections, FindingWarn, "Raise maxclients in redis.conf.", "%d of %d connections are taken", server.Clients, server.ClientLimit)
	}
	if server.Unsaved != "" {
		c.say(CodeRedisUnsaved, FindingFail, "See the log of redis-server: is its disk full?", "its last try to write the %s has failed", server.Unsaved)
	}
	if server.AppendOnly != nil && !*server.AppendOnly && !c.Throwaway {
		c.say(CodeRedisNoLog, FindingWarn, "redis-cli CONFIG SET appendonly yes, and the same in redis.conf.",
			"it logs no writes: when it dies it loses what came after its last snapshot")
	}
	if server.Ahead > askew || server.Ahead < -askew {
		c.say(CodeClockAskew, FindingWarn, "Set both by NTP.",
			"its clock and this machine's are %s apart: times given to commands are off by as much", server.Ahead.Abs().Round(time.Second))
	}
	return nil
}

// failedRunners returns why runners of a daemon cannot start, by name.
func failedRunners(v *Worker) map[string]string {
	why := map[string]string{}
	for _, p := range v.Processes {
		for _, r := range p.Runners {
			if r.State == store.RunnerFailed {
				why[r.Runner] = r.Why
			}
		}
	}
	for _, t := range v.Templates {
		if t.State == store.RunnerFailed {
			why[t.Runner] = t.Why
		}
	}
	return why
}

const badKeyFix = "See redis-cli TYPE, and move the key away with RENAME."

func (c *checkup) daemons(ctx context.Context) error {
	workers, err := Workers(ctx, c.over)
	if workers == nil {
		return err
	}
	if c.Differ != nil {
		MarkSettings(workers, c.Differ)
	}
	masters, threads, stubborn := 0, 0, 0
	for _, v := range workers {
		switch {
		case v.State == WorkerGhost:
			c.say(CodeDaemonGhost, FindingWarn, "", "%s is registered, but has no process", wire.WorkerText(v.Worker))
			continue
		case v.Kind == KindForeign:
			continue
		case v.State == WorkerBroken:
			c.say(CodeDaemonUnreadable, FindingFail, badKeyFix, "%s: its entry in Redis is not a hash (%s)", v.Worker, v.Problem)
			masters++
			threads += v.Threads
			continue
		case v.State == WorkerStale:
			c.say(CodeDaemonGone, FindingWarn, "", "%s has not been heard of for %s: the others recover its jobs", v.Worker, Since(v.Beat, time.Now()))
			continue
		}
		masters++
		threads += v.Threads
		if silence := time.Since(v.Beat); !v.Beat.IsZero() && silence > silent {
			c.run(CodeDaemonSilent, FindingWarn, "hosts dead "+Shell(v.Host),
				"%s has not been heard of for %s: its jobs run again when its lease has ended, or at once if its host is said to be dead", v.Worker, Age(silence))
		}
		if v.State == "paused" {
			c.run(CodeDaemonPaused, FindingWarn, "workers resume "+Shell(v.Worker), "%s is paused", v.Worker)
		}
		settings, others := splitDiffering(v.Differing())
		if len(settings) > 0 {
			c.run(CodeSettingsDiffer, FindingFail, "config show", "%s has another %s than the other daemons: see docs/reliability.md for what breaks",
				v.Worker, strings.Join(settings, ", "))
		}
		if len(others) > 0 {
			c.run(CodeVersionDiffers, FindingWarn, "workers -o wide", "%s has another %s than the other daemons", v.Worker, strings.Join(others, " and "))
		}
		for _, p := range v.Processes {
			if p.Problem != "" {
				c.say(CodeProcessUnreadable, FindingFail, badKeyFix, "what process %s does cannot be read (%s)", p.Proc, p.Problem)
			}
			if p.State == WorkerStale {
				c.say(CodeProcessSilent, FindingWarn, "", "process %d of %s has not been heard of for %s", p.PID, v.Worker, Age(time.Duration(p.BeatS)*time.Second))
				continue // what it reported about its jobs is as old
			}
			for _, job := range p.Jobs {
				if !job.Stubborn {
					continue
				}
				if stubborn++; stubborn <= namedFindings {
					c.say(CodeJobStubborn, FindingWarn, stubbornFix, "%s of %s does not stop, though it was told to or its time is over (it has run for %s): %s",
						wire.Printable(cmp.Or(job.Class, job.ID), MaxName), wire.Printable(job.Queue, MaxName), Age(time.Duration(job.RunningS)*time.Second), goes(&p, v))
				}
			}
		}
		runners := failedRunners(v)
		for _, name := range slices.Sorted(maps.Keys(runners)) {
			c.say(CodeRunnerFailed, FindingFail, "It is tried again by itself. Start its command by hand, as docs/runners.md says; workers show "+Shell(v.Worker)+" shows when it is there.",
				"%s cannot start runner %s: %s", v.Worker, wire.Printable(name, 100), wire.Printable(strings.Join(strings.Fields(runners[name]), " "), 500))
		}
	}
	if stubborn > namedFindings {
		c.say(CodeJobStubborn, FindingWarn, stubbornFix, "%s more that do not stop", Plural(stubborn-namedFindings, "job"))
	}
	first := Finding{Status: FindingOK, Text: fmt.Sprintf("%s with %s", Plural(masters, "daemon"), Plural(threads, "thread"))}
	if masters == 0 {
		first = Finding{Status: FindingFail, Text: "no daemon of resqued runs", Fix: "work", Command: true, Code: CodeNoDaemon}
	}
	c.found = slices.Insert(c.found, 0, first)
	return err
}

// stubbornFix is how to keep a job from taking its process down.
const stubbornFix = "Have its code end with its context, or at TERM, as docs/handlers.md says; give its class a longer timeout if it needs one."

// goes says what happens to a process with a job that does not stop.
func goes(p *Process, v *Worker) string {
	others := 0
	for _, job := range p.Jobs {
		if !job.Stubborn {
			others++
		}
	}
	said := fmt.Sprintf("process %d of %s takes no new jobs, and is ended", p.PID, v.Worker)
	if others > 0 {
		said += fmt.Sprintf(", with %s next to it if they take long", Plural(others, "job"))
	}
	return said
}

// splitDiffering separates settings that must be equal in all daemons from the others.
func splitDiffering(differs []string) (settings, others []string) {
	for _, what := range differs {
		if what == "version" || strings.HasPrefix(what, "config") {
			others = append(others, what)
		} else {
			settings = append(settings, what)
		}
	}
	return settings, others
}

// queueLate is not a state: a queue whose jobs are taken may be late too.
const queueLate = "late"

// queueLimited is not a state: it is starved by limits.
const queueLimited = "limited"

func (c *checkup) queues(ctx context.Context) error {
	queues, err := Queues(ctx, c.over)
	if queues == nil {
		return err
	}
	kinds := map[string][]*Queue{}
	for _, q := range queues {
		state := q.State
		if state == QueueStarved && len(q.Limits) > 0 {
			state = queueLimited
		}
		kinds[state] = append(kinds[state], q)
		if q.Late && q.State != QueuePaused && q.State != QueueOrphan {
			kinds[queueLate] = append(kinds[queueLate], q)
		}
		if q.Suspects > 0 {
			c.run(CodeSuspects, FindingWarn, "queues show "+Shell(q.Queue), "%s of %s may have killed their worker process, and run alone", Plural(int(q.Suspects), "job"), q.Queue)
		}
	}
	// Name the longest.
	for _, of := range kinds {
		slices.SortStableFunc(of, func(a, b *Queue) int { return cmp.Compare(b.Waiting(), a.Waiting()) })
	}
	each := func(code, state, status, text, more string, fix func(q *Queue) string) {
		for i, q := range kinds[state] {
			if cutFindings(i, len(kinds[state])) {
				c.run(code, status, "queues", "%s more %s", Plural(len(kinds[state])-i, "queue"), more)
				return
			}
			text := cmp.Or(text, q.Why)
			said := q.Queue + ": " + text
			if n := q.Waiting(); n > 0 {
				said = fmt.Sprintf("%s: %s, %s", q.Queue, waiting(n), text)
			}
			if q.Problem != "" {
				said += " (" + q.Problem + ")"
			}
			c.run(code, status, fix(q), "%s", said)
		}
	}
	each(CodeQueueLate, queueLate, FindingWarn, "and the first has waited for longer than promised", "are late", func(q *Queue) string { return "queues show " + Shell(q.Queue) })
	each(CodeQueueOrphan, QueueOrphan, FindingFail, "and nothing works this queue", "with jobs are worked by nothing", func(q *Queue) string { return "work --queues " + Shell(selector.Literal(q.Queue)) })
	each(CodeQueueBroken, QueueBroken, FindingFail, "its key is not a list", "have keys that are not lists", func(*Queue) string { return "queues -o wide" })
	each(CodeQueueStarved, QueueStarved, FindingWarn, "all of them locked", "have locked jobs only", func(*Queue) string { return "locks waiting" })
	each(CodeQueueLimited, queueLimited, FindingOK, "", "wait for limits", func(*Queue) string { return "limits" })
	each(CodeQueuePaused, QueuePaused, FindingWarn, "", "are paused", func(q *Queue) string {
		if slices.ContainsFunc(q.Pauses, (*store.Pause).ByName) {
			return "queues resume " + Shell(q.Queue)
		}
		return "queues resume --all"
	})
	return err
}

// cutFindings reports whether finding i of n and all later ones become one line; a single one does
// not.
func cutFindings(i, n int) bool { return i == namedFindings && i < n-1 }

func waiting(n int64) string {
	if n == 1 {
		return "1 job waits"
	}
	return Grouped(n) + " jobs wait"
}

func (c *checkup) unique(ctx context.Context) error {
	configured := c.Unique
	if configured == nil {
		configured = func(string) bool { return false }
	}
	queues, err := UniqueQueues(ctx, c.over, configured)
	for _, q := range queues {
		switch q.State {
		case UniqueBroken:
			c.run(CodeUniqueBroken, FindingFail, "locks unique -o wide", "%s: %s", q.Queue, q.Problem)
		case UniqueOutOfStep:
			c.run(CodeUniqueOutOfStep, FindingWarn, "locks repair "+Shell(q.Queue),
				"%s holds %d jobs, its set %d payloads, its list of times %d: a Ruby worker refuses to take one", q.Queue, *q.Size, *q.Set, *q.StartAt)
		}
	}
	return err
}

func (c *checkup) locks(ctx context.Context) error {
	locks, cut, err := Locks(ctx, c.store, "", checkedLocks)
	bad := slices.DeleteFunc(locks, func(v *Lock) bool { return v.State != "orphan" && v.State != "expired" })
	for i, v := range bad {
		if cutFindings(i, len(bad)) {
			c.run(CodeLockOrphan, FindingWarn, "locks --check", "%s more without a job that lives", Plural(len(bad)-i, "lock"))
			break
		}
		if v.State == "expired" {
			c.run(CodeLockExpired, FindingWarn, "locks show "+Shell(v.Key), "%s: its time is past, and its job still runs or waits", v.Key)
		} else {
			c.run(CodeLockOrphan, FindingWarn, "locks release "+Shell(v.Key), "%s: its job is gone", v.Key)
		}
	}
	if cut {
		c.run("", FindingOK, "locks --check --limit N", "there are more than the %s locks that were looked at", Grouped(checkedLocks))
	}
	return err
}

func (c *checkup) parked(ctx context.Context) error {
	jobs, total, err := ParkedJobs(ctx, c.store, 1000)
	reasons := map[string]int{}
	for _, v := range jobs {
		if v.State == ParkedWaits {
			reasons[v.Reason]++
		}
	}
	for reason, n := range reasons {
		c.run(CodeJobParked, FindingFail, "parked", "%s: %s", Plural(n, "job"), reason)
	}
	slices.SortFunc(c.found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	if len(c.found) == 0 && total > 0 {
		c.say("", FindingOK, "", "%s kept for failures that refer to them", Plural(int(total), "payload"))
	}
	return err
}

func (c *checkup) schedules(ctx context.Context) error {
	schedules, now, err := Schedules(ctx, c.store, c.Schedules)
	if err != nil {
		return err
	}
	for _, v := range schedules {
		switch {
		case v.Source == FromRedis && !c.Schedules.Stored:
			// A Ruby scheduler keeps it.
		case v.Invalid != "":
			c.run(CodeScheduleInvalid, FindingFail, "schedule", "%s: %s", v.Name, v.Invalid)
		case v.Overdue != nil:
			c.run(CodeScheduleLate, FindingFail, "workers", "%s was to enqueue its job %s ago: no daemon that has the schedule runs", v.Name, Since(*v.Overdue, now))
		}
	}
	return nil
}

// moves looks for jobs left on the way by an interrupted "queues move --to".
func (c *checkup) moves(ctx context.Context) error {
	jobs, where, err := c.store.Transferring(ctx)
	for _, queue := range slices.Sorted(maps.Keys(jobs)) {
		if jobs[queue] > 0 {
			c.run(CodeMoveUnfinished, FindingFail, "queues move "+Shell(queue)+" --to "+Shell(where[queue]),
				"%s of queue %s on the way to store %s: the command that moved them did not come to its end, or is not there yet",
				Plural(int(jobs[queue]), "job"), queue, where[queue])
		}
	}
	return err
}
