package main

// Scenarios. All leases are 3 seconds unless stated otherwise.
var (
	calm    = scenario{"hardly a fault", []string{"-settle", "12s", "-quiet", "5s", "-duration", "1s", "-faults", "client-kill"}}
	slow    = scenario{"commands that outlive a lease", []string{"-quiet", "20s", "-duration", "1s", "-slow", "10s", "-faults", "client-kill"}}
	kills   = scenario{"worker processes are killed", []string{"-settle", "12s", "-quiet", "1s", "-duration", "20s", "-faults", "worker-kill"}}
	replies = scenario{"replies are lost", []string{"-settle", "12s", "-quiet", "2s", "-duration", "10s", "-faults", "reply-lost,reply-never"}}
	gone    = scenario{"a machine is gone", []string{"-settle", "12s", "-quiet", "3s", "-duration", "1s", "-faults", "host-kill"}}
	frozen  = scenario{"a machine is frozen", []string{"-settle", "12s", "-quiet", "3s", "-duration", "1s", "-faults", "host-freeze"}}
	cut     = scenario{"a network is cut", []string{"-quiet", "5s", "-duration", "25s", "-slow", "20s", "-faults", "net-partition"}}
	stopped = scenario{"worker processes are stopped, the lease is 10 s", []string{"-quiet", "6s", "-duration", "40s", "-lease", "10s", "-slow", "25s", "-faults", "worker-stop"}}
	away    = scenario{"Redis is away", []string{"-settle", "12s", "-quiet", "4s", "-duration", "12s", "-faults", "redis-away"}}
	uneven  = scenario{"Redis comes back for one after the other", []string{"-settle", "12s", "-quiet", "1s", "-duration", "25s", "-faults", "redis-uneven"}}
	unread  = scenario{"a log is not read", []string{"-settle", "12s", "-quiet", "2s", "-duration", "1s", "-faults", "log-blocked"}}
	held    = scenario{"a program is held at its exec", []string{"-settle", "12s", "-quiet", "1s", "-duration", "10s", "-faults", "exec-blocked"}}
	mixed   = scenario{"leases are of 3, 5 and 7 s", []string{"-settle", "12s", "-quiet", "10s", "-duration", "1s", "-mixed", "-faults", "client-kill"}}
	boxed   = scenario{"a container is started again", []string{"-settle", "12s", "-quiet", "1s", "-duration", "30s", "-faults", "container-restart"}}
	aborted = scenario{"USR1, and a worker process is killed", []string{"-profile", "long", "-settle", "12s", "-quiet", "1s", "-duration", "1m", "-faults", "usr1-crash"}}
	quietly = scenario{"two daemons do not see each other", []string{"-settle", "12s", "-quiet", "12s", "-duration", "1s", "-faults", "client-kill"}}
)

// Paths in the product.
const (
	lua          = "internal/store/lua/"
	lib          = "internal/rdb/lua/lib/"
	long         = "internal/longstore/lua/"
	exchangeDone = lua + "exchange_plain.lua"
	exchangeEnds = lua + "exchange_finish.lua"
	exchangeAsks = lua + "exchange_wants.lua"
	exchangeFast = lua + "exchange_fast.lua"
	recoverer    = "internal/master/recoverer.go"
	master       = "internal/master/master.go"
)

// defects break one promise each: I are a job system's invariants by number, R retries, D
// delayed jobs, S schedules, L long jobs, M limits, K kills, P daemons that share a host or its name. The
// model test covers defects of scripts that show without a fault.
var defects = []defect{
	{"I1", "a repeated request takes other jobs", []edit{
		{exchangeAsks, `local mine = again and call(`, `local mine = false and call(`},
	}, replies, []string{"C1"}},
	{"I1", "a request whose answer was lost is sent anew, not repeated", []edit{
		{"internal/workerproc/exchange.go", `req.Repeat = req.Repeat || !rdb.Unexecuted(err)`, `req.Repeat = false`},
	}, replies, []string{"C1"}},
	{"I1", "the jobs of the dead are not put back", []edit{
		{lua + "recover.lua", `putback(prefix, r.queue, r.payload, r.start, true)`, ``},
	}, kills, []string{"C1"}},
	{"I1", "a job that has failed is not noted", []edit{
		{exchangeEnds, `if e.kind == 'f' then parked.file(prefix, e.list, proc .. '#' .. e.token, ms, e.record, e.text, e.gap, e.large) end`, ``},
	}, calm, []string{"C1"}},
	{"I1", "a job that asked for another run is forgotten", []edit{
		{exchangeEnds, `call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + e.pause), delayed(proc .. '#' .. e.token, e.queue, record.payload, start ~= '-'))`, ``},
	}, calm, []string{"C1"}},

	{"I2", "locks are free before the processes of the dead are gone", []edit{
		{"internal/master/sweep.go", `killed, err := w.child.Sweep(try)`, `killed, err := 0, try.Err()`},
	}, kills, []string{"C2"}},
	// With only one of the two edits it is still ended, though often too late.
	{"I2", "a stopped worker process is left alone", []edit{
		{master, `m.due(m.silentUntil(w))`, `m.due(m.silentUntil(w).Add(time.Hour))`},
		{recoverer, `j.tell(ctx, report{proc: name, lapsed: true})`, ``},
	}, stopped, []string{"C2"}},
	{"I2", "holders of locks go on when no beat gets through", []edit{
		{"internal/workerproc/process.go", `p.kills.watchLocks()`, ``},
	}, cut, []string{"C2"}},
	{"I2", "a command's job ends before what the command has started", []edit{
		{"internal/handler/command_wait.go", "if !p.alone() {\n\t\tp.sweep()\n\t}", ""},
	}, calm, []string{"C2"}},
	{"I2", "beats do not extend locks", []edit{
		{lua + "beat.lua", `call('EXPIRE', key, ttl)`, ``},
	}, slow, []string{"C2", "C7"}},

	{"I2", "a master cuts leases that are much longer than its own", []edit{
		{lua + "orphans.lua", `local longest = math.max(lease, 35000)`, `local longest = lease`},
	}, mixed, []string{"C13"}},

	{"I3", "fencing tokens count seconds", []edit{
		{lib + "base.lua", `if fence < us then fence = us end`, `fence = math.floor(us / 1000000)`},
	}, calm, []string{"C3"}},
	{"I3", "each process counts fencing tokens of its own", []edit{
		{exchangeFast, `prefix .. 'resqued:fence', nil`, `prefix .. 'resqued:fence:' .. proc, nil`},
		{lib + "base.lua", `if fence < us then fence = us end`, ``},
	}, calm, []string{"C3"}},

	{"I4", "the end of a job counts each time that it is told", []edit{
		{exchangeEnds, `if call('HDEL', inflight, e.token) == 0 then`, `if call('HDEL', inflight, e.token) == -1 then`},
		{exchangeDone, `if there[token] == c then`, `if true then`},
	}, replies, []string{"C1"}},
	// Only together: the record of a job that others have recovered is gone.
	{"I4", "the end of a job counts though others have recovered it", []edit{
		{exchangeEnds, `if call('HDEL', inflight, e.token) == 0 then`, `if call('HDEL', inflight, e.token) == -1 then`},
		{exchangeEnds, `if call('HDEL', inflight, token) == 1 then`, `if call('HDEL', inflight, token) >= 0 then`},
		{exchangeDone, `if there[token] == c then`, `if true then`},
		{exchangeFast, `if not lease or lease < (nwant > 0 and a or ms) then return {'FENCED'} end`, ``},
	}, cut, []string{"C1"}},
	{"I4", "a process that was given up for dead is not told", []edit{
		{lua + "beat.lua", `if not lasts or lasts == 0 then return {'FENCED'} end`, ``},
	}, frozen, []string{"C6", "C7"}},

	{"I6", "an outage is not a reason for grace", []edit{
		{lib + "grace.lua", `call('HSET', key, 'grace', fmt('%.0f', ms + longest))`, ``},
	}, uneven, []string{"C4", "C6"}},
	{"I6", "the jobs of a machine that is gone are left", []edit{
		{recoverer, `for _, name := range around.Orphans {`, `for _, name := range around.Orphans[:0] {`},
	}, gone, []string{"C6"}},
	{"I6", "a master looks for the dead of others only when it starts", []edit{
		{master, `if m.roundAt.IsZero() || m.due(m.roundAt) {`, `if m.roundAt.IsZero() {`},
	}, gone, []string{"C6"}},
	{"I6", "a master leaves its own dead to others", []edit{
		{"internal/master/recover.go", `m.unrecovered[w.proc] = orderly`, `return`},
	}, kills, []string{"C6"}},

	{"I6", "a process waits for the exec of its commands", []edit{
		{"internal/sys/launch/memory_linux.go", "if !raw.Supported {", "if true {"},
	}, held, []string{"C4", "C6"}},
	{"I6", "who logs waits for the reader of the log", []edit{
		{"internal/sys/logqueue/logqueue.go", `if w.size > 0 && w.size+len(line) > w.limit {`, `if true {
			return w.out.Write(line)`},
	}, unread, []string{"C4", "C6"}},

	{"R", "the number of a job's attempts stands still", []edit{
		{"internal/thread/retry/book.go", `n := t.Attempt - 1`, `n := 0`},
	}, calm, []string{"C9"}},
	{"R", "a job that has failed runs again at once", []edit{
		{exchangeEnds, `start ~= '-', ms + e.pause, proc`, `start ~= '-', ms, proc`},
	}, calm, []string{"C9"}},
	{"R", "the count of a job outlives it", []edit{
		{exchangeEnds, `if type(pcall_('GET', key)) == 'string' then pcall_('DEL', key) end`, ``},
	}, calm, []string{"C7"}},

	{"D", "jobs are due a moment early", []edit{
		{lua + "move_due.lua", `local sec = math.floor(ms / 1000)`, `local sec = math.ceil(ms / 1000)`},
	}, calm, []string{"C10"}},
	{"D", "a job that is due is moved more than once", []edit{
		{lua + "move_due.lua", `call('ZREM', own, member)`, `call('ZADD', own, retry, member)`},
	}, calm, []string{"C1", "C4"}},

	{"S", "each master enqueues the ticks of a schedule", []edit{
		{lua + "tick.lua", `if (record or '') ~= known then return {'CHANGED', ms, record or ''} end`, ``},
	}, calm, []string{"C11"}},
	{"S", "of the ticks of an outage one is made up for", []edit{
		{lua + "tick.lua", `duplicates, jobs = 0, 0, 0, tonumber(ARGV[9])`, `duplicates, jobs = 0, 0, 0, math.min(1, tonumber(ARGV[9]))`},
	}, away, []string{"C11"}},

	{"L", "the next slice of a long job goes nowhere", []edit{
		{long + "save.lua", `queueslice(prefix, id, tenant, queue, payload, ms)`, ``},
	}, calm, []string{"C1", "C12"}},
	{"L", "a long job forgets what it has done", []edit{
		{long + "save.lua", `call('HSET', statekey(prefix, id), ARGV[i], ARGV[i + 1])`, ``},
	}, calm, []string{"C12"}},
	{"L", "units of long jobs are saved at the end of a slice alone", []edit{
		{"longjob/save.go", `fresh := r.o.SaveEvery > 0 &&`, `fresh := r.o.SaveEvery == 0 ||`},
	}, kills, []string{"C12"}},

	{"M", "a limit lets one job too many begin", []edit{
		{lua + "limit_together.lua", `g.running + n <= g.most then`, `g.running + n <= g.most + 1 then`},
	}, calm, []string{"C15"}},
	{"M", "a limit lets jobs begin twice as often", []edit{
		{lua + "limit.lua", `return from + g.every * cost`, `return from + g.every * cost / 2`},
		{lua + "limit_together.lua", `pay(g, math.max(g.paid or 0, us) + g.every * g.units)`, `pay(g, math.max(g.paid or 0, us) + g.every * g.units / 2)`},
	}, calm, []string{"C15"}},
	{"M", "jobs under limits go on when no beat gets through", []edit{
		{"internal/workerproc/job.go", `j.LockKey != "" || j.Counts ||`, `j.LockKey != "" ||`},
	}, cut, []string{"C15"}},
	{"M", "the place of a job is free although it has not ended", []edit{
		{lib + "limits.lua", `if not proc or pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. proc, token) == 0 then`, `if proc then`},
	}, calm, []string{"C15"}},

	{"K", "what USR1 has killed runs again when its process dies", []edit{
		{"internal/master/recover.go", `told := d.killed || slices.Contains(d.tokens, job.Token) || slices.Contains(policy.registered.Fails, job.Token)`, `told := false && slices.Contains(policy.registered.Fails, job.Token)`},
	}, aborted, []string{"C14", "C4"}},

	{"P", "whom a daemon may not signal is dead", []edit{
		{"internal/sys/procfs/id.go", `if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {`, `if err := unix.Kill(id.PID, 0); errors.Is(err, err) && err != nil {`},
		{"internal/sys/procfs/gone.go", `return t.View != "" && t.View == view() || t.Cgroup != "" && emptied(t.Cgroup)`, `return true`},
	}, quietly, []string{"C4"}},
	{"P", "worker ids come back with the pids of a container", []edit{
		{"internal/wire/worker.go", `ours, pid, slot, thread, nonce(proc))`, `ours, pid, slot, thread, "again")`},
	}, boxed, []string{"C13"}},
}
