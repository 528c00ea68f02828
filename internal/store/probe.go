package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	lackingScript  = newScript("missing_rights", "lib/rights", "missing_rights")
	rehearseScript = newScript("run_uncached", "run_uncached")
)

// errRehearsed ends a call whose script was only queued, to be run with others.
var errRehearsed = errors.New("rehearsed")

// probeWorker is the worker of a Probe, and probeMissing one that is not registered.
const (
	probeWorker  = "probe:1:plain"
	probeMissing = probeWorker + ",missing"
)

// probeDue is when the job of a Probe is due that waits as Ruby's scheduler has them.
var probeDue = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// probeCount is the count of attempts of a job of a Probe.
const probeCount = "resque-retry:Probe"

// rehearsal collects scripts that are to run as one transaction.
type rehearsal struct {
	pipe  redis.Pipeliner
	names []string
}

func (r *rehearsal) add(ctx context.Context, sc *script, keys []string, args []any) {
	r.pipe.Eval(ctx, rehearseScript.source(), keys, append([]any{sc.source()}, args...)...)
	r.names = append(r.names, sc.name)
}

// push is what Store.Push does.
func (r *rehearsal) push(ctx context.Context, queues, key string, payloads ...[]byte) {
	r.pipe.SAdd(ctx, queues, "plain")
	for _, p := range payloads {
		r.pipe.RPush(ctx, key, p)
	}
	for range r.pipe.Len() - len(r.names) {
		r.names = append(r.names, "push")
	}
}

// Probe runs every script once, on keys of its own under resqued:probe, so that a right
// which is missing, or a server that does not do what the scripts need, is found before
// there is a job to lose by it. It is one transaction and leaves nothing behind, scripts
// included, but for the two small ones of its own.
func (s *Store) Probe(ctx context.Context) error { return s.probe(ctx, "") }

// probe is Probe. Scripts that a server has run before need not run again, for which it would
// have no time for anybody else: mark stands for these scripts and this server, and is
// noted where somebody has worked already. Without one they always run.
func (s *Store) probe(ctx context.Context, mark string) error {
	raw, err := s.eval(ctx, lackingScript, s.key("resqued:probe"), scriptCommands())
	if err != nil {
		return s.refusedRights(err)
	}
	if lacking := texts(raw); len(lacking) > 0 {
		return fmt.Errorf("redis at %s: the user may not run %s on keys of %s*; docs/redis-keys.md lists the rights that resqued needs",
			s.Where(), strings.Join(lacking, ", "), s.prefix)
	}
	if mark != "" && s.write.HGet(ctx, s.key(keyMeta), "probed").Val() == mark {
		// This reports whether the server takes writes, as running them would.
		return s.refusedRights(s.write.HSet(ctx, s.key(keyMeta), "probed", mark).Err())
	}
	if err := s.runAll(ctx); err != nil || mark == "" {
		return err
	}
	if s.write.Exists(ctx, s.key(keyMeta)).Val() > 0 {
		s.write.HSet(ctx, s.key(keyMeta), "probed", mark) // if it fails they run once more
	}
	return nil
}

// runAll runs every script.
func (s *Store) runAll(ctx context.Context) error {
	var names []string
	var replies []redis.Cmder
	err := s.once(ctx, func() error {
		play := s.rehearse(ctx)
		names = play.names
		var err error
		replies, err = play.pipe.Exec(ctx)
		return err
	})
	for i, reply := range replies {
		why := reply.Err()
		switch {
		case why == nil, errors.Is(why, redis.Nil), redis.HasErrorPrefix(why, "EXECABORT") && refusal(why) == "": // another one tells why
		case refusal(why) != "", Unreachable(why), i >= len(names):
			return s.refusedRights(why)
		default:
			return fmt.Errorf("script %s does not run on redis at %s: %w", names[i], s.Where(), why)
		}
	}
	return s.refusedRights(err)
}

// rehearse queues what a Probe runs. What an earlier one has left that did not come to
// its end goes first.
func (s *Store) rehearse(ctx context.Context) *rehearsal {
	opts := *s.opts.Load()
	opts.Namespace += ":resqued:probe"
	r := &rehearsal{pipe: s.write.TxPipeline()}
	play := &Store{prefix: opts.Namespace + ":", read: s.read, rehearsed: r}
	play.opts.Store(&opts)
	r.pipe.Del(ctx, play.remains()...)
	r.names = append(r.names, "clear")
	play.life(ctx)
	r.pipe.Del(ctx, play.remains()...)
	return r
}

// probeMark stands for the scripts of this program on a server with an INFO: "" for one that
// cannot be asked what its user may do, which only running them tells, and for a node of a
// cluster, because it may be another that has run them.
func probeMark(info string) string {
	id := infoField(info, "run_id")
	if n, err := majorVersion(info); err != nil || n < 7 || id == "" || infoField(info, "redis_mode") == "cluster" {
		return ""
	}
	return id + " " + scriptsName()
}

// scriptsName stands for all scripts as they are: it is the name of one that is made of all files.
var scriptsName = sync.OnceValue(func() string {
	files := scriptFiles()
	for i, file := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(file, "lua/"), ".lua")
	}
	return newScript("", files...).sha()
})

// scriptFiles returns the paths of all files of lua/, those of lua/lib first.
func scriptFiles() []string {
	var files []string
	for _, pattern := range []string{"lua/lib/*.lua", "lua/*.lua"} {
		some, _ := fs.Glob(luaFiles, pattern) // the pattern is well-formed
		files = append(files, some...)
	}
	return files
}

// refusedRights names the server, and says what to do about a refusal of what the
// scripts are sent with.
func (s *Store) refusedRights(err error) error {
	switch {
	case err == nil:
		return nil
	case refusal(err) == "NOPERM":
		return fmt.Errorf("redis at %s: %w; docs/redis-keys.md lists the rights that resqued needs", s.Where(), err)
	default:
		return fmt.Errorf("redis at %s: %w", s.Where(), err)
	}
}

// life is that of a process whose jobs come to all possible ends. Every script has its
// part in it; the errors are those of the rehearsal.
func (s *Store) life(ctx context.Context) {
	const proc, worker, lock = "probe", probeWorker, "lock:probe"
	plain, unique := Queue{Name: "plain", Locked: true, Cap: 9}, Queue{Name: "unique", Unique: true}
	payload := func(n string) []byte {
		if n == "3" || n == "6" {
			// They wait for a moment, which may end with a second: then they would wait in
			// keys of resque-scheduler that have no known name, if these could hold them.
			return []byte(`{"class":"Probe","args":[` + n + `],"id":"probe"}`)
		}
		return []byte(`{"class":"Probe","args":[` + n + `]}`)
	}
	record := `{"payload":null}`
	var sending int64
	exchange := func(queue Queue, how Suspects, ends []Completion, tokens ...string) {
		sending++
		req := ExchangeRequest{Proc: proc, Master: "probe", Sending: sending, Repeat: sending > 1, Completions: ends, Suspects: how, Queues: []Queue{queue}}
		for _, token := range tokens {
			req.Wants = append(req.Wants, Want{Token: token, Worker: worker})
		}
		_, _ = s.Exchange(ctx, req)
	}
	job := func(token string, queue Queue, n string) *Reserved {
		return &Reserved{Token: token, Queue: queue.Name, Worker: worker, Payload: payload(n), LockKey: s.key("locket:job_locks:Probe[" + n + "]"), Capped: queue.Cap > 0, Unique: queue.Unique}
	}

	_ = s.PutMaster(ctx, MasterInfo{ID: "probe", Fields: map[string]string{"state": "probing"}, TTL: time.Minute})
	_ = s.Register(ctx, Registration{Proc: proc, Workers: []string{worker}, Started: "now", Info: map[string]string{"state": "probing"}})
	s.rehearsed.push(ctx, s.key(keyQueues), s.queueKey(plain.Name), payload("1"), payload("1"), payload("2"), payload("3"))
	_, _ = s.PushUnique(ctx, unique.Name, false, payload("1"), payload("2"))
	_, _ = s.EnqueueLoner(ctx, LonerRequest{Key: lock, Queue: plain.Name, Payload: payload("4")})
	s.EnqueueLater(ctx, []LaterJob{
		{Queue: plain.Name, Payload: payload("5"), At: probeDue}, {Queue: plain.Name, Payload: payload("6"), In: time.Second}, {Queue: unique.Name, Payload: payload("1"), Unique: true},
	})
	_, _ = s.MoveDue(ctx, nil)
	_ = s.Undelay(ctx, []DelayedJob{{key: s.key(keyDueAt) + "4102444800", item: `{"class":"Probe","args":[5],"queue":"plain"}`}}, true, nil, func(DelayedJob, FailedOutcome) {})
	_, _ = s.FileMisfits(ctx, []Misfit{{key: s.key(keyDueAt) + "1"}}, true, func([]byte, string) FiledFailure { return FiledFailure{} })
	_, _ = s.Poll(ctx, true, "0", nil)
	exchange(plain, SetApart, nil, "1", "2", "3", "6")
	exchange(unique, SetApart, nil, "4")
	held := HeldLock{Proc: proc, Token: "1", Key: lock, Timeout: time.Minute}
	_, _ = s.AcquireLock(ctx, AcquireRequest{HeldLock: held, Loner: true, Queue: plain.Name, Payload: payload("1")})
	_, _ = s.LockState(ctx, lock, false)
	_, _ = s.RefreshLock(ctx, held)
	_, _ = s.ExtendLock(ctx, lock, time.Minute, false)
	_, _ = s.KeepLocks(ctx, []HeldLock{held})
	_ = s.ReleaseLock(ctx, held)
	_ = s.WriteMirrors(ctx, proc, []Mirror{{Token: "1", Worker: worker, Value: []byte("{}")}})
	_, _ = s.Beat(ctx, BeatRequest{Proc: proc, Jobs: []Running{{Token: "1", LockKey: s.key("locket:job_locks:Probe[1]")}}, Look: []string{worker}})
	_, _, _ = s.Enroll(ctx, Enrollment{Proc: proc, Threads: []EnrolledThread{{WorkerStat: WorkerStat{Worker: probeMissing, Processed: 1}, Token: "1"}}})
	_, _ = s.RequestKill(ctx, RunName{proc, "1"}, KillRequest{Grace: time.Second})
	_ = s.DropKills(ctx, proc, "none")
	_, _ = s.eval(ctx, locksScript, s.key(keyProcs), []any{s.prefix, 1, "job", s.key("locket:job_locks:Probe[1]")})
	_, _, _ = s.RemoveLock(ctx, LockInfo{Kind: "job", Key: "locket:job_locks:Probe[9]"}, true)
	s.longLife(ctx, RunName{proc, "1"})
	exchange(plain, SetApart, []Completion{
		{Job: job("6", plain, "4"), Kind: Retried, Count: &Count{Key: probeCount, Lifetime: time.Minute}},
		{Job: job("1", plain, "1"), Kind: Done, Mirrored: true, Killed: true, Count: &Count{Key: probeCount}},
		{Job: job("2", plain, "2"), Kind: Failed, Failure: Record([]byte(record))},
		{Job: job("3", plain, "3"), Kind: Requeued, Delay: time.Millisecond},
		{Job: job("4", unique, "1"), Kind: Returned},
	}, "5")
	_, _, _, _ = s.unpark(ctx, "none")
	_, _ = s.DropKept(ctx, []string{"none"})
	_, _ = s.DropParked(ctx, "none")
	_, _ = s.eval(ctx, retryScript, s.key(keyFailed), []any{s.prefix, keyFailed, 0, record, record + " ", plain.Name, payload("2"), "0"})
	sift := s.sifting(keyFailed)
	for _, op := range [][]any{{"begin"}, {"step", 1, record + " ", 0, record + " ", "", "", "", "0"}, {"on"}, {"back"}, {"drop"}} {
		_, _, _ = sift.call(ctx, op[0].(string), op[1:]...) //nolint:forcetypeassert // all are texts
	}
	_, _ = s.repair(ctx, unique.Name, "step", &UniqueReport{})
	_, _, _ = s.Orphans(ctx)
	_, _, _ = s.Fence(ctx, proc, true)
	_ = s.Recover(ctx, proc, []Verdict{{Token: "5", Action: Suspect}})
	_, _ = s.Unregister(ctx, proc)
	_, _ = s.eval(ctx, dequeueScript, s.queueKey(plain.Name), []any{s.prefix, plain.Name, 0, 1, payload("9")})
	charge := Charge{Me: "probe"}
	_, _ = s.Schedules(ctx, SchedulesRequest{Names: []string{"probe"}, Prints: []string{"x"}, Keeper: "probe", Stored: true, Charge: charge})
	_, _ = s.Tick(ctx, TickRequest{
		Name: "probe", Print: "x", Tick: time.UnixMilli(1), Jobs: 2, Queue: unique.Name, Unique: true, Payload: payload("5"),
		IfRunning: "skip", Shown: "{}", Charge: charge,
	})
	_ = s.ForgetRemoved(ctx, map[string]KeptNote{"probe": {}})
	_ = s.LeaveCharge(ctx, charge)
	_, _ = s.RemoveQueue(ctx, plain.Name, false)
	_, _ = s.RemoveQueue(ctx, unique.Name, false)
	_ = s.DropMaster(ctx, "probe")
}

// longLife is that of long jobs, whose slice runs under the record of another job.
func (s *Store) longLife(ctx context.Context, run RunName) {
	_, _ = s.AddLongRuns(ctx, LongAlways, []NewLongRun{
		{UUID: "1", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"}, {UUID: "2", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"},
	})
	slice := LongSlice{UUID: "2", Slice: 1, Run: run, Share: 2}
	_, _ = s.LongBegin(ctx, slice)
	_, _ = s.LongLock(ctx, "probe", run)
	_ = s.LongUnlock(ctx, "probe", run)
	_, _ = s.LongSave(ctx, LongSave{LongSlice: slice, Op: LongCompleted, Class: "Probe"}) // it does not know the fence
	_ = s.LongCancel(ctx, "2", 0)
	_ = s.LongLeave(ctx, slice)
	_ = s.LongTurns(ctx, 0, 9)
	_ = s.LongAgain(ctx, LongRecord{UUID: "1", Fields: map[string]string{"class": "Probe", "slice": "1"}}, false)
	_, _ = s.LongForget(ctx, 9)
	_, _ = s.eval(ctx, longSubjectsScript, s.key(keyLongSubjects)+"Probe", []any{s.prefix, 60000, 1, "recurs"})
	_, _ = s.eval(ctx, longRecurScript, s.key(keyLongRecur)+"Probe", []any{
		s.prefix, "Probe", "1", "", "1", 1000, 1000, 9, 0, 60000, 1, "subjects", 1, "3", "recurs", "[]", "plain", "", "probe", LongPayload("Probe", "3", 1), "0", 1000,
	})
}

// remains are the keys that outlive life.
func (s *Store) remains() []string {
	names := []string{
		keyQueues, keyFailed, keyFailedLists, keySifting, keyPassed + keyFailed, failedSuffix, keyDelayed, keySchedule, keyDueAt + "4102444800", keyDueLists + `{"class":"Probe","args":[5],"queue":"plain"}`, keyProcs, keyMasters, "workers", "stat:processed", "stat:failed", "locket:queue_lock_counters",
		"worker:" + probeWorker, "worker:" + probeWorker + ":started", "stat:processed:" + probeWorker, "stat:failed:" + probeWorker,
		"worker:" + probeMissing + ":started", "stat:processed:" + probeMissing,
		"lock:probe", MarkerKey("lock:probe"), "locket:job_locks:Probe[1]", "locket:job_locks:Probe[2]", "locket:job_locks:Probe[3]", "locket:job_locks:Probe[9]",
		"locket:job_locks:Probe[4]", probeCount, keyMeta, "resqued:fence", "resqued:deaths", "resqued:deaths:plain", "resqued:died:plain", "resqued:caps:probe", "resqued:suspects", "resqued:suspects:plain", keyRelock, keyParking,
		keyCron, keyShown, keyLastEnqueued, s.opts.Load().Namespace + ":resque_scheduler_master_lock",
		keyInflight + "probe", "resqued:proc:probe", "resqued:held:probe", "resqued:kills:probe", "resqued:killed:probe", keyMaster + "probe",
		keyLongRun + "1", keyLongState + "1", keyLongRun + "2", keyLongState + "2", keyLongCurrent, keyLongActive, keyLongEnded, keyLongLocks,
		keyLongRun + "3", keyLongState + "3", keyLongRecurring, keyLongRecur + "Probe", keyLongSubjects + "Probe", keyLongStarts + "Probe",
		keyLongBusy + "probe", keyLongLine + "probe", keyLongTenants, keyLongShares,
	}
	for _, queue := range []string{"plain", "unique"} {
		names = append(names, "queue:"+queue, "queue:"+queue+":uniqueue", "queue:"+queue+":start_at", "resqued:seen:"+queue,
			"resqued:blocked:"+queue, "resqued:open:"+queue, "resqued:heal:"+queue, "resqued:healing:"+queue, "resqued:twins:"+queue)
	}
	for i, name := range names {
		names[i] = s.key(name)
	}
	return names
}

var commandInScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:call_?|query)\('([A-Z]+)'`) })

// scriptCommands are all commands that occur in scripts, sorted.
func scriptCommands() []any {
	var names []string
	for _, file := range scriptFiles() {
		text, _ := luaFiles.ReadFile(file)
		for _, match := range commandInScript().FindAllSubmatch(text, -1) {
			names = append(names, string(match[1]))
		}
	}
	slices.Sort(names)
	var args []any
	for _, name := range slices.Compact(names) {
		args = append(args, name)
	}
	return args
}
