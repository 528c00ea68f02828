package view

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
	// Code is one of FindingCodes, or "" if all is well. docs/operations.md has runbooks.
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

// FindingStore is what the checks need of the store.
type FindingStore interface {
	QueueStore
	LockStore
	WaitStore
	UniqueStore
	ParkedStore
	ScheduleStore
	Server(ctx context.Context) (rdb.Server, error)
	Transferring(ctx context.Context) (jobs map[string]int64, where map[string]string, err error)
}

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

// Findings checks the server, the daemons and what they work on, each with at least one finding.
// It fails only if the server does not answer or refuses the password.
func Findings(ctx context.Context, s FindingStore, c Checks) ([]Finding, error) {
	var all []Finding
	for _, check := range []struct {
		name string
		do   func(ctx context.Context, s FindingStore, c Checks) ([]Finding, error)
		fine string
	}{
		{"redis", checkServer, ""},
		{"daemons", checkDaemons, ""},
		{"queues", checkQueues, "every queue with jobs is worked"},
		{"unique", checkUnique, "the keys of unique queues match"},
		{"locks", checkLocks, "every lock has a holder that lives"},
		{"parked", checkParked, "the end of every job has its place"},
		{"schedules", checkSchedules, "no schedule is late"},
		{"moves", checkMoves, ""}, // reported only if there is one
	} {
		found, err := check.do(ctx, s, c)
		if err != nil && (rdb.Unreachable(err) || rdb.Unauthorized(err) || ctx.Err() != nil) {
			return all, err
		}
		if err != nil {
			f := Finding{Status: FindingFail, Code: CodeUnchecked, Text: "cannot be checked: " + Plainly(err.Error())}
			if len(found) > 0 {
				f.Text = "not all of it can be checked: " + Plainly(err.Error())
			}
			if rdb.Refusal(err) == "NOPERM" {
				f.Fix = "Give this user of Redis the rights that docs/redis-keys.md lists."
			}
			found = append(found, f)
		}
		if len(found) == 0 && check.fine != "" {
			found = []Finding{{Status: FindingOK, Text: check.fine}}
		}
		for _, f := range found {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

func checkServer(ctx context.Context, s FindingStore, c Checks) ([]Finding, error) {
	server, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	version := server.Version
	if version == "" {
		version = "of an unknown version"
	}
	found := []Finding{{Status: FindingOK, Text: fmt.Sprintf("%s, answers in %s", version, server.RoundTrip.Round(10*time.Microsecond))}}
	add := func(code, status, text, fix string) {
		found = append(found, Finding{Status: status, Text: text, Fix: fix, Code: code})
	}
	if server.RoundTrip > slow {
		add(CodeRedisFar, FindingWarn, fmt.Sprintf("the nearest of three answers took %s", server.RoundTrip.Round(time.Millisecond)),
			"Each batch of jobs takes a round trip: run the daemons near the server, with more threads.")
	}
	if server.Role == "slave" {
		add(CodeRedisReplica, FindingFail, "it is a replica", "Let redis_url name the primary.")
	}
	if server.MemoryLimit > 0 && server.Policy != "" && server.Policy != "noeviction" {
		add(CodeRedisEvicts, FindingFail, fmt.Sprintf("it may throw away jobs: maxmemory is %s, maxmemory-policy %s", Size(server.MemoryLimit), server.Policy),
			"redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.")
	}
	if server.MemoryLimit > 0 && float64(server.Memory) > almost*float64(server.MemoryLimit) {
		add(CodeRedisFull, FindingWarn, fmt.Sprintf("%s of %s of its memory are used; when it is full pushes are refused", Size(server.Memory), Size(server.MemoryLimit)),
			"Raise maxmemory, or see what takes it: redis-cli --bigkeys.")
	}
	if server.ClientLimit > 0 && float64(server.Clients) > almost*float64(server.ClientLimit) {
		add(CodeRedisConnections, FindingWarn, fmt.Sprintf("%d of %d connections are taken", server.Clients, server.ClientLimit), "Raise maxclients in redis.conf.")
	}
	if server.Unsaved != "" {
		add(CodeRedisUnsaved, FindingFail, "its last try to write the "+server.Unsaved+" has failed", "See the log of redis-server: is its disk full?")
	}
	if server.AppendOnly != nil && !*server.AppendOnly && !c.Throwaway {
		add(CodeRedisNoLog, FindingWarn, "it logs no writes: when it dies it loses what came after its last snapshot",
			"redis-cli CONFIG SET appendonly yes, and the same in redis.conf.")
	}
	if server.Ahead > askew || server.Ahead < -askew {
		add(CodeClockAskew, FindingWarn, fmt.Sprintf("its clock and this machine's are %s apart: times given to commands are off by as much", server.Ahead.Abs().Round(time.Second)),
			"Set both by NTP.")
	}
	return found, nil
}

func failedRunners(v *Worker) iter.Seq2[string, string] {
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
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(why)) {
			text := strings.Join(strings.Fields(why[name]), " ")
			if !yield(wire.Printable(name, 100), wire.Printable(text, 500)) {
				return
			}
		}
	}
}

const badKeyFix = "See redis-cli TYPE, and move the key away with RENAME."

func checkDaemons(ctx context.Context, s FindingStore, c Checks) (found []Finding, err error) {
	workers, err := Workers(ctx, s)
	if workers == nil {
		return nil, err
	}
	if c.Differ != nil {
		MarkSettings(workers, c.Differ)
	}
	masters, threads, stubborn := 0, 0, 0
	add := func(code, status, fix string, command bool, format string, args ...any) {
		found = append(found, Finding{Status: status, Text: fmt.Sprintf(format, args...), Fix: fix, Command: command, Code: code})
	}
	for _, v := range workers {
		switch {
		case v.State == WorkerGhost:
			add(CodeDaemonGhost, FindingWarn, "", false, "%s is registered, but has no process", WorkerText(v.Worker))
			continue
		case v.Kind == KindForeign:
			continue
		case v.State == WorkerBroken:
			add(CodeDaemonUnreadable, FindingFail, badKeyFix, false,
				"%s: its entry in Redis is not a hash (%s)", v.Worker, v.Problem)
			masters++
			threads += v.Threads
			continue
		case v.State == WorkerStale:
			add(CodeDaemonGone, FindingWarn, "", false, "%s has not been heard of for %s: the others recover its jobs", v.Worker, Since(v.Beat, time.Now()))
			continue
		}
		masters++
		threads += v.Threads
		if silence := time.Since(v.Beat); !v.Beat.IsZero() && silence > silent {
			add(CodeDaemonSilent, FindingWarn, "hosts dead "+Shell(v.Host), true,
				"%s has not been heard of for %s: its jobs run again when its lease has ended, or at once if its host is said to be dead", v.Worker, Age(silence))
		}
		if v.State == "paused" {
			add(CodeDaemonPaused, FindingWarn, "workers resume "+Shell(v.Worker), true, "%s is paused", v.Worker)
		}
		settings, others := splitDiffering(v.Differing())
		if len(settings) > 0 {
			add(CodeSettingsDiffer, FindingFail, "config show", true, "%s has another %s than the other daemons: see docs/reliability.md for what breaks",
				v.Worker, strings.Join(settings, ", "))
		}
		if len(others) > 0 {
			add(CodeVersionDiffers, FindingWarn, "workers -o wide", true, "%s has another %s than the other daemons", v.Worker, strings.Join(others, " and "))
		}
		for _, p := range v.Processes {
			if p.Problem != "" {
				add(CodeProcessUnreadable, FindingFail, badKeyFix, false, "what process %s does cannot be read (%s)", p.Proc, p.Problem)
			}
			if p.State == WorkerStale {
				add(CodeProcessSilent, FindingWarn, "", false, "process %d of %s has not been heard of for %s", p.PID, v.Worker, Age(time.Duration(p.BeatS)*time.Second))
				continue // what it reported about its jobs is as old
			}
			for _, job := range p.Jobs {
				if !job.Stubborn {
					continue
				}
				if stubborn++; stubborn <= namedFindings {
					add(CodeJobStubborn, FindingWarn, stubbornFix, false, "%s of %s does not stop, though it was told to or its time is over (it has run for %s): %s",
						wire.Printable(cmp.Or(job.Class, job.ID), MaxName), wire.Printable(job.Queue, MaxName), Age(time.Duration(job.RunningS)*time.Second), goes(&p, v))
				}
			}
		}
		for name, why := range failedRunners(v) {
			add(CodeRunnerFailed, FindingFail, "It is tried again by itself. Start its command by hand, as docs/runners.md says; workers show "+Shell(v.Worker)+" shows when it is there.",
				false, "%s cannot start runner %s: %s", v.Worker, name, why)
		}
	}
	if stubborn > namedFindings {
		add(CodeJobStubborn, FindingWarn, stubbornFix, false, "%s more that do not stop", Plural(stubborn-namedFindings, "job"))
	}
	if masters == 0 {
		return append([]Finding{{Status: FindingFail, Text: "no daemon of resqued runs", Fix: "work", Command: true, Code: CodeNoDaemon}}, found...), err
	}
	text := fmt.Sprintf("%s with %s", Plural(masters, "daemon"), Plural(threads, "thread"))
	return append([]Finding{{Status: FindingOK, Text: text}}, found...), err
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

func checkQueues(ctx context.Context, s FindingStore, _ Checks) (found []Finding, err error) {
	queues, err := Queues(ctx, s)
	if queues == nil {
		return nil, err
	}
	kinds := map[string][]*Queue{}
	for _, q := range queues {
		kinds[q.State] = append(kinds[q.State], q)
		if q.Late && q.State != QueuePaused && q.State != QueueOrphan {
			kinds[queueLate] = append(kinds[queueLate], q)
		}
		if q.Suspects > 0 {
			found = append(found, Finding{
				Status: FindingWarn, Fix: "queues show " + Shell(q.Queue), Command: true, Code: CodeSuspects,
				Text: fmt.Sprintf("%s of %s may have killed their worker process, and run alone", Plural(int(q.Suspects), "job"), q.Queue),
			})
		}
	}
	// Name the longest.
	for _, of := range kinds {
		slices.SortStableFunc(of, func(a, b *Queue) int { return cmp.Compare(sizeOf(b), sizeOf(a)) })
	}
	say := func(code, state, status, text, more string, fix func(q *Queue) string) {
		for i, q := range kinds[state] {
			if cutFindings(i, len(kinds[state])) {
				found = append(found, Finding{
					Status: status, Fix: "queues", Command: true, Code: code,
					Text: fmt.Sprintf("%s more %s", Plural(len(kinds[state])-i, "queue"), more),
				})
				return
			}
			f := Finding{Status: status, Text: fmt.Sprintf("%s: %s", q.Queue, text), Fix: fix(q), Command: true, Code: code}
			if q.Size != nil && *q.Size > 0 {
				f.Text = fmt.Sprintf("%s: %s, %s", q.Queue, waiting(*q.Size), text)
			}
			if q.Problem != "" {
				f.Text += " (" + q.Problem + ")"
			}
			found = append(found, f)
		}
	}
	say(CodeQueueLate, queueLate, FindingWarn, "and the first has waited for longer than promised", "are late", func(q *Queue) string { return "queues show " + Shell(q.Queue) })
	say(CodeQueueOrphan, QueueOrphan, FindingFail, "and nothing works this queue", "with jobs are worked by nothing", func(q *Queue) string { return "work --queues " + Shell(selector.Literal(q.Queue)) })
	say(CodeQueueBroken, QueueBroken, FindingFail, "its key is not a list", "have keys that are not lists", func(*Queue) string { return "queues -o wide" })
	say(CodeQueueStarved, QueueStarved, FindingWarn, "all of them locked", "have locked jobs only", func(*Queue) string { return "locks waiting" })
	say(CodeQueuePaused, QueuePaused, FindingWarn, "and the queue is paused", "are paused", func(q *Queue) string { return "queues resume " + Shell(q.Queue) })
	return found, err
}

// cutFindings reports whether finding i of n and all later ones become one line; a single one does
// not.
func cutFindings(i, n int) bool { return i == namedFindings && i < n-1 }

func sizeOf(q *Queue) int64 {
	if q.Size == nil {
		return 0
	}
	return *q.Size
}

func waiting(n int64) string {
	if n == 1 {
		return "1 job waits"
	}
	return Grouped(n) + " jobs wait"
}

func checkUnique(ctx context.Context, s FindingStore, c Checks) (found []Finding, err error) {
	unique := c.Unique
	if unique == nil {
		unique = func(string) bool { return false }
	}
	queues, err := UniqueQueues(ctx, s, unique)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		switch q.State {
		case UniqueBroken:
			found = append(found, Finding{Status: FindingFail, Text: q.Queue + ": " + q.Problem, Fix: "locks unique -o wide", Command: true, Code: CodeUniqueBroken})
		case UniqueOutOfStep:
			found = append(found, Finding{
				Status: FindingWarn, Fix: "locks repair " + Shell(q.Queue), Command: true, Code: CodeUniqueOutOfStep,
				Text: fmt.Sprintf("%s holds %d jobs, its set %d payloads, its list of times %d: a Ruby worker refuses to take one", q.Queue, *q.Size, *q.Set, *q.StartAt),
			})
		}
	}
	return found, nil
}

func checkLocks(ctx context.Context, s FindingStore, _ Checks) (found []Finding, err error) {
	locks, cut, err := Locks(ctx, s, "", checkedLocks)
	if err != nil {
		return nil, err
	}
	bad := slices.DeleteFunc(locks, func(v *Lock) bool { return v.State != "orphan" && v.State != "expired" })
	for i, v := range bad {
		if cutFindings(i, len(bad)) {
			found = append(found, Finding{
				Status: FindingWarn, Fix: "locks --check", Command: true, Code: CodeLockOrphan,
				Text: fmt.Sprintf("%s more without a job that lives", Plural(len(bad)-i, "lock")),
			})
			break
		}
		f := Finding{Status: FindingWarn, Text: fmt.Sprintf("%s: its job is gone", v.Key), Fix: "locks release " + Shell(v.Key), Command: true, Code: CodeLockOrphan}
		if v.State == "expired" {
			f.Text = fmt.Sprintf("%s: its time is past, and its job still runs or waits", v.Key)
			f.Fix, f.Code = "locks show "+Shell(v.Key), CodeLockExpired
		}
		found = append(found, f)
	}
	if cut {
		found = append(found, Finding{
			Status: FindingOK, Fix: "locks --check --limit N", Command: true,
			Text: fmt.Sprintf("there are more than the %s locks that were looked at", Grouped(checkedLocks)),
		})
	}
	return found, nil
}

func checkParked(ctx context.Context, s FindingStore, _ Checks) (found []Finding, err error) {
	jobs, total, err := ParkedJobs(ctx, s, 1000)
	if err != nil {
		return nil, err
	}
	reasons := map[string]int{}
	for _, v := range jobs {
		if v.State == ParkedWaits {
			reasons[v.Reason]++
		}
	}
	for reason, n := range reasons {
		found = append(found, Finding{Status: FindingFail, Text: fmt.Sprintf("%s: %s", Plural(n, "job"), reason), Fix: "parked", Command: true, Code: CodeJobParked})
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	if len(found) == 0 && total > 0 {
		found = append(found, Finding{Status: FindingOK, Text: fmt.Sprintf("%s kept for failures that refer to them", Plural(int(total), "payload"))})
	}
	return found, nil
}

func checkSchedules(ctx context.Context, s FindingStore, c Checks) (found []Finding, err error) {
	schedules, now, err := Schedules(ctx, s, c.Schedules)
	if err != nil {
		return nil, err
	}
	for _, v := range schedules {
		switch {
		case v.Source == FromRedis && !c.Schedules.Stored:
			// A Ruby scheduler keeps it.
		case v.Invalid != "":
			found = append(found, Finding{Status: FindingFail, Text: fmt.Sprintf("%s: %s", v.Name, v.Invalid), Fix: "schedule", Command: true, Code: CodeScheduleInvalid})
		case v.Overdue != nil:
			found = append(found, Finding{
				Status: FindingFail, Fix: "workers", Command: true, Code: CodeScheduleLate,
				Text: fmt.Sprintf("%s was to enqueue its job %s ago: no daemon that has the schedule runs", v.Name, Since(*v.Overdue, now)),
			})
		}
	}
	return found, nil
}

// checkMoves looks for jobs left on the way by an interrupted "queues move --to".
func checkMoves(ctx context.Context, s FindingStore, _ Checks) (found []Finding, err error) {
	jobs, where, err := s.Transferring(ctx)
	if err != nil {
		return nil, err
	}
	for _, queue := range slices.Sorted(maps.Keys(jobs)) {
		if jobs[queue] == 0 {
			continue
		}
		found = append(found, Finding{
			Status: FindingFail, Fix: "queues move " + Shell(queue) + " --to " + Shell(where[queue]), Command: true, Code: CodeMoveUnfinished,
			Text: fmt.Sprintf("%s of queue %s on the way to store %s: the command that moved them did not come to its end, or is not there yet",
				Plural(int(jobs[queue]), "job"), queue, where[queue]),
		})
	}
	return found, nil
}
