package store

import (
	"context"
	"io/fs"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// probeWorker is the worker of a Probe, probeMissing one that is not registered.
const (
	probeWorker  = "probe:1:plain"
	probeMissing = probeWorker + ",missing"
)

// probeDue is when a Probe's job in the keys of Ruby's scheduler is due.
var probeDue = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

const probeCount = "resque-retry:Probe"

// WaitReady returns when the server is ready and runs all scripts, including other packages', or with an error that
// waiting does not fix; see rdb.Client.WaitReady.
func (s *Store) WaitReady(ctx context.Context, tell func(err error, wait time.Duration), others ...rdb.Part) error {
	return s.db.WaitReady(ctx, s.rehearsal(others...), tell)
}

// rehearsal runs every script once, on separate keys under resqued:probe.
func (s *Store) rehearsal(others ...rdb.Part) rdb.Rehearsal {
	opts := *s.opts.Load()
	opts.Namespace += rdb.ProbeSpace
	r := rdb.Rehearsal{Files: []fs.FS{Lua}, Remains: remains(opts.Namespace)}
	for _, part := range others {
		r.Files, r.Remains = append(r.Files, part.Files), append(r.Remains, part.Remains...)
	}
	r.Play = func(ctx context.Context, c *rdb.Client) {
		play := &Store{db: c}
		play.opts.Store(&opts)
		play.life(ctx, others)
	}
	return r
}

// life is the life of a process whose jobs end in all possible ways. Every script runs in it; all calls return the
// rehearsal's error.
func (s *Store) life(ctx context.Context, others []rdb.Part) {
	const proc, worker, lock = "probe", probeWorker, "lock:probe"
	plain, unique := Queue{Name: "plain", Lined: true, Locked: true, Cap: 9, Fair: NewFair(0, nil, 1)}, Queue{Name: "unique", Unique: true}
	payload := func(n string) []byte {
		if n == "3" || n == "6" {
			// They wait for a moment, which may end with a second. The extra key keeps them out of
			// resque-scheduler's keys, whose names would then be unknown.
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
		return &Reserved{Token: token, Queue: queue.Name, Worker: worker, Payload: payload(n), LockKey: s.db.Key("locket:job_locks:Probe[" + n + "]"), Capped: queue.Cap > 0, Unique: queue.Unique, Limited: n == "1"}
	}

	master := MasterInfo{
		ID: "probe", TTL: time.Minute, Fields: map[string]string{"state": "probing", FieldOrders: "1"},
		Answers: map[string]OrderAnswer{"none": {Done: true, Text: "probed"}},
	}
	_, _ = s.PutMaster(ctx, master)
	_, _, _ = s.RequestOrder(ctx, "probe", OrderResume, "")
	_, _ = s.PutMaster(ctx, master)
	_ = s.Register(ctx, Registration{Proc: proc, Workers: []string{worker}, Started: "now", Info: map[string]string{"state": "probing"}})
	s.db.Queue("push", func(pipe redis.Pipeliner) { // like Push
		pipe.SAdd(ctx, s.db.Key(keyQueues), plain.Name)
		for _, n := range []string{"1", "1", "2", "3"} {
			pipe.RPush(ctx, s.db.QueueKey(plain.Name), payload(n))
		}
	})
	_, _ = s.PushUnique(ctx, unique.Name, false, payload("1"), payload("2"))
	_, _ = s.EnqueueLoner(ctx, LonerRequest{Key: lock, Queue: plain.Name, Payload: payload("4")})
	s.EnqueueLater(ctx, []LaterJob{
		{Queue: plain.Name, Payload: payload("5"), At: probeDue}, {Queue: plain.Name, Payload: payload("6"), In: time.Second}, {Queue: unique.Name, Payload: payload("1"), Unique: true},
	})
	_, _ = s.MoveDue(ctx, "probe", nil)
	_ = s.Undelay(ctx, []DelayedJob{{key: s.db.Key(keyDueAt) + "4102444800", item: `{"class":"Probe","args":[5],"queue":"plain"}`}}, true, nil, func(DelayedJob, FailedOutcome) {})
	_, _ = s.FailMalformed(ctx, []MalformedItem{{key: s.db.Key(keyDueAt) + "1"}}, true, func([]byte, string) FiledFailure { return FiledFailure{} })
	_, _ = s.Poll(ctx, PollRequest{All: true, Share: time.Second})
	exchange(plain, SetApart, nil, "1", "2", "3", "6")
	exchange(unique, SetApart, nil, "4")
	_, _, _ = s.Limit(ctx, proc, []Gated{{Token: "1", Gates: []Gate{{Rule: "probe", Concurrency: 1, Cost: 1}}}}, true)
	_ = s.CloseLimit(ctx, "probe", "", time.UnixMilli(1))
	held := HeldLock{Proc: proc, Token: "1", Key: lock, Timeout: time.Minute}
	_, _ = s.AcquireLock(ctx, AcquireRequest{HeldLock: held, Loner: true, Queue: plain.Name, Payload: payload("1")})
	_, _ = s.LockState(ctx, lock, false)
	_, _ = s.RefreshLock(ctx, held)
	_, _ = s.ExtendLock(ctx, lock, time.Minute, false)
	_, _ = s.KeepLocks(ctx, []HeldLock{held})
	_ = s.ReleaseLock(ctx, held)
	_ = s.WriteMirrors(ctx, proc, []Mirror{{Token: "1", Worker: worker, Value: []byte("{}")}})
	_, _ = s.Beat(ctx, BeatRequest{Proc: proc, Jobs: []Running{{Token: "1", LockKey: s.db.Key("locket:job_locks:Probe[1]")}}, Look: []string{worker}})
	_, _, _ = s.Enroll(ctx, Enrollment{Proc: proc, Threads: []EnrolledThread{{WorkerStat: WorkerStat{Worker: probeMissing, Processed: 1}, Token: "1"}}})
	_, _ = s.RequestKill(ctx, RunName{Proc: proc, Token: "1"}, KillRequest{Grace: time.Second})
	_ = s.DropKills(ctx, proc, "none")
	_, _ = s.db.Eval(ctx, locksScript, s.db.Key(keyProcs), []any{s.db.Prefix, 1, "job", s.db.Key("locket:job_locks:Probe[1]")})
	_, _, _ = s.RemoveLock(ctx, LockInfo{Kind: LocketLock, Key: "locket:job_locks:Probe[9]"}, true)
	_, _, _ = s.RemoveLock(ctx, LockInfo{Kind: TimeoutLock, Key: "lock:Probe:9"}, true)
	for _, part := range others {
		part.Play(ctx, s.db, RunName{Proc: proc, Token: "1"})
	}
	exchange(plain, SetApart, []Completion{
		{Job: job("6", plain, "4"), Kind: Retried, Count: &Count{Key: probeCount, Lifetime: time.Minute}},
		{Job: job("1", plain, "1"), Kind: Done, Mirrored: true, Killed: true, Count: &Count{Key: probeCount}},
		{Job: job("2", plain, "2"), Kind: Failed, Failure: Record([]byte(record))},
		{Job: job("3", plain, "3"), Kind: Requeued, Delay: time.Millisecond},
		{Job: job("4", unique, "1"), Kind: Returned},
	}, "5")
	_, _, _, _ = s.unpark(ctx, "none")
	_, _ = s.DropParked(ctx, "none")
	_, _ = s.db.Eval(ctx, failedEditScript, s.db.Key(keyFailed), []any{s.db.Prefix, keyFailed, "0", 0, record, record + " ", plain.Name, payload("2"), "0"})
	sift := s.sifting(keyFailed)
	for _, op := range [][]any{
		{"begin"}, {"step", 1, record + " ", 0, record + " ", record + " ", "", "", "0"}, {"on"}, {"back"}, {"drop", 1, record + " ", record + " "},
	} {
		_, _, _ = sift.call(ctx, op[0].(string), op[1:]...) //nolint:forcetypeassert // all are texts
	}
	_, _, _ = s.repair(ctx, unique.Name, "r")
	_, _ = s.LookAround(ctx, "", "", "")
	_ = s.NoteOtherWorkers(ctx, time.Minute)
	_, _, _ = s.SilentHosts(ctx, SilentRequest{Place: "probe", Most: 1, Turn: "probe", For: time.Second})
	for _, dead := range []bool{false, true} {
		_, _ = s.SettleHost(ctx, HostVerdict{Place: "probe", Dead: dead, Turn: "probe"})
	}
	_, _, _ = s.Fence(ctx, proc, true)
	_ = s.Recover(ctx, proc, []Verdict{{Token: "5", Action: Suspect}})
	_, _ = s.Unregister(ctx, proc)
	_, _ = s.db.Eval(ctx, dequeueScript, s.db.QueueKey(plain.Name), []any{s.db.Prefix, plain.Name, 0, 1, "", payload("9")})
	_, _ = s.db.Eval(ctx, moveJobsScript, s.db.QueueKey(plain.Name), []any{s.db.Prefix, plain.Name, unique.Name, 0, 1, "u", "", payload("9"), s.db.Key(MarkerKey(lock))})
	_, _ = s.db.Eval(ctx, moveSuspectsScript, s.db.Key(rdb.KeySuspects)+plain.Name, []any{s.db.Prefix, plain.Name, unique.Name, "- {}", s.db.Key(MarkerKey(lock))})
	_, _, _, _ = s.moveIn(ctx, plain.Name, onTheWay{source: "probe", number: 1, payloads: []string{"{}"}})
	_, _ = s.moveOut(ctx, TransferRequest{Queue: plain.Name, Where: "probe"}, s.placeOf(plain.Name), "probe", 0, 1, []string{string(payload("9"))})
	_, _ = s.moveEnd(ctx, plain.Name, 1, true)
	scheduler := SchedulerLock{Me: "probe"}
	_, _ = s.Schedules(ctx, SchedulesRequest{Names: []string{"probe"}, Prints: []string{"x"}, Keeper: "probe", Stored: true, SchedulerLock: scheduler})
	_, _ = s.Tick(ctx, TickRequest{
		Name: "probe", Print: "x", Tick: time.UnixMilli(1), Jobs: 2, Queue: unique.Name, Unique: true, Payload: payload("5"),
		IfRunning: "skip", Shown: "{}", SchedulerLock: scheduler, Keeper: "probe",
	})
	_ = s.ForgetRemoved(ctx, map[string]KeptNote{"probe": {}})
	_ = s.ReleaseSchedulerLock(ctx, scheduler)
	_, _ = s.Unline(ctx, plain.Name)
	_, _ = s.RemoveQueue(ctx, plain.Name, false)
	_, _ = s.db.Eval(ctx, dropLinesScript, s.db.Key(rdb.KeyLines)+plain.Name, []any{s.db.Prefix, plain.Name})
	_, _ = s.RemoveQueue(ctx, unique.Name, true)
	_, _ = s.SweepQueues(ctx, "probe", time.Minute, "")
	_, _ = s.PruneQueue(ctx, unique.Name)
	_, _ = s.DropMaster(ctx, "probe")
}

func remains(namespace string) []string {
	names := []string{
		keyQueues, keyFailed, keyFailedLists, keySifting, keyPassed + keyFailed, failedSuffix, rdb.KeyDelayed, keySchedule, keyDueAt + "4102444800", keyDueLists + `{"class":"Probe","args":[5],"queue":"plain"}`, keyProcs, keyMasters, "workers", "stat:processed", "stat:failed", "locket:queue_lock_counters",
		"worker:" + probeWorker, "worker:" + probeWorker + ":started", "stat:processed:" + probeWorker, "stat:failed:" + probeWorker,
		"worker:" + probeMissing + ":started", "stat:processed:" + probeMissing,
		"lock:probe", MarkerKey("lock:probe"), "locket:job_locks:Probe[1]", "locket:job_locks:Probe[2]", "locket:job_locks:Probe[3]", "locket:job_locks:Probe[9]",
		"locket:job_locks:Probe[4]", probeCount, rdb.KeyMeta, "resqued:fence", keyLined, keyAwaited, keyTurned, keyOtherWorkers, keyOtherWorkers + ":next", keyOtherWorkers + ":turn", "resqued:deaths", "resqued:deaths:plain", "resqued:died:plain", "resqued:caps:probe", "resqued:suspects", "resqued:suspects:plain", "resqued:suspects:unique", "resqued:deaths:unique", "resqued:died:unique", keyRelock, keyParking, "resqued:mover", keyEmpty, keyPruned, keyPruned + ":look", "resqued:sweeper",
		keyCron, keyShown, keyLastEnqueued, namespace + ":resque_scheduler_master_lock",
		keyMoved, keyMoving, keyMovingJobs + "plain",
		rdb.KeyInflight + "probe", "resqued:proc:probe", "resqued:held:probe", "resqued:kills:probe", "resqued:killed:probe", keyMaster + "probe", keyOrders + "probe", keySlots + "probe", keyLimit + "probe:", keyClosed, keyOrdered + "probe", keyAsked + "probe",
	}
	for _, queue := range []string{"plain", "unique"} {
		for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
			names = append(names, "resqued:turn:"+strconv.Itoa(len(queue))+":"+queue+":="+n)
			names = append(names, "resqued:line:"+strconv.Itoa(len(queue))+":"+queue+":Probe["+n+"]")
		}
		names = append(names, rdb.KeyLines+queue, keyReady+queue, rdb.KeyTurns+queue, "resqued:turn:"+strconv.Itoa(len(queue))+":"+queue+":!", "queue:"+queue, "queue:"+queue+":uniqueue", "queue:"+queue+":start_at", "resqued:seen:"+queue,
			"resqued:blocked:"+queue, "resqued:open:"+queue, "resqued:heal:"+queue, "resqued:healing:"+queue)
	}
	return names
}

// Steps makes the checks of WaitReady once; see rdb.Client.Steps.
func (s *Store) Steps(ctx context.Context, others ...rdb.Part) []rdb.Step {
	return s.db.Steps(ctx, s.rehearsal(others...))
}
