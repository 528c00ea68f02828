package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// This file has limits; see lua/lib/limits.lua for their keys and lua/limit_together.lua for what they do.

const (
	keySlots    = "resqued:slots:"
	keyLimit    = "resqued:limit:"
	keyLimits   = "resqued:limits"
	keyLimitDue = "resqued:limit:due"
	keyClosed   = "resqued:closed"
	keyGates    = "resqued:gates"
	keyOver     = "resqued:throttled"
)

// The first byte of the name of a line for a limit: of the whole fleet, or of each host or process.
const (
	fleetLine  = "\x01"
	scopedLine = "\x02"
)

var closeLimitScript = rdb.NewScript(Lua, "close_limit", "lib/base", "close_limit")

var limitScript = rdb.NewScript(Lua, "limit", "lib/base", "lib/payload", "lib/rights", "lib/records", "lib/limits", "limit_together",
	"lib/payload_functions", "lib/blocked_queues", "lib/lines", "lib/line_locks", "lib/unique", "lib/delay", "limit")

// Gate is a limit of one job.
type Gate struct {
	// Rule is the limit's name. Key is what it counts by, Scope the host or process that it counts for, if it does
	// not count for the fleet.
	Rule, Key, Scope string
	// Concurrency is how many jobs may run; 0 = no limit.
	Concurrency int
	// Every is how long one unit takes to come back, Burst how many there are at most; Every 0 = no limit of the rate.
	Every time.Duration
	Burst int64
	// Cost is how many units the job takes.
	Cost int64
	// Ends: the process ends a job over the limit; otherwise it waits. Replaces: the oldest job in its way is killed.
	Ends, Replaces bool
}

// Gated is a job that a process has taken, and its limits.
type Gated struct {
	Token string
	// Lined and Passed are those of Reserved.
	Lined  bool
	Passed string
	Gates  []Gate
}

// cameFrom returns the line in which the job has waited: a limit's, "l" a lock's, "" none.
func (g *Gated) cameFrom() string {
	if g.Passed == "" && g.Lined {
		return "l"
	}
	return g.Passed
}

// Admission is what limits make of a job.
type Admission struct {
	// Begins: the job counts under all of its limits and may begin.
	Begins bool
	// Counts: it counts under a concurrency.
	Counts bool
	// Waits: it is no longer the process's, and waits for Gate.
	Waits bool
	// Replaced: a newer job waits that replaces it.
	Replaced bool
	// Gate is the index of the limit in the way.
	Gate int
	// After is when it may no longer be; negative = unknown.
	After time.Duration
}

// maxGates bounds the limits of one call, as Lua's unpack has a limit of some thousands.
const maxGates = 1000

// Limit applies the limits of jobs that a process has just taken. again: an earlier call for them may have run. next is
// when a job that waits may go, because of its rate; negative = none.
func (s *Store) Limit(ctx context.Context, proc string, jobs []Gated, again bool) (out []Admission, next time.Duration, err error) {
	next = -1
	for len(out) < len(jobs) {
		from, gates := len(out), 0
		to := from
		for to < len(jobs) && (to == from || gates+len(jobs[to].Gates) <= maxGates && to-from < maxGates) {
			gates += len(jobs[to].Gates)
			to++
		}
		told, soon, err := s.limit(ctx, proc, jobs[from:to], again)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, told...)
		if next < 0 || soon >= 0 && soon < next {
			next = soon
		}
	}
	return out, next, nil
}

func (s *Store) limit(ctx context.Context, proc string, jobs []Gated, again bool) ([]Admission, time.Duration, error) {
	gates, of := gateArgs(jobs)
	args := append(make([]any, 0, 4+len(gates)+3*len(jobs)), s.db.Prefix, proc, KillGrace.Milliseconds(), fmt.Sprintf("%c %d", digit(again), len(gates)/gateFields))
	args = append(args, gates...)
	for i := 0; i < len(jobs); {
		from, limits, tokens := jobs[i].cameFrom(), of[i], []byte(nil)
		for ; i < len(jobs) && jobs[i].cameFrom() == from && of[i] == limits; i++ {
			tokens = append(append(tokens, ' '), jobs[i].Token...)
		}
		args = append(args, from, limits, tokens)
	}
	list, err := s.db.EvalList(ctx, limitScript, s.db.Key(rdb.KeyInflight)+proc, args, 2)
	if err != nil {
		return nil, 0, err
	}
	out, lines := make([]Admission, len(jobs)), strings.Split(list.Text(1), "\n")
	if len(lines) != len(jobs) {
		return nil, 0, fmt.Errorf("script limit answered %d of %d jobs", len(lines), len(jobs))
	}
	for i := range out {
		kind, rest, _ := strings.Cut(lines[i], " ")
		gate, after, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(gate)
		a := Admission{Begins: strings.HasPrefix(kind, "+"), Counts: kind == "+c", Waits: kind == "-" || kind == "w", Replaced: kind == "n", Gate: max(n-1, 0), After: -1}
		if ms, err := strconv.ParseInt(after, 10, 64); err == nil && ms >= 0 {
			a.After = time.Duration(ms) * time.Millisecond
		}
		out[i] = a
	}
	return out, time.Duration(list.Number(0)) * time.Millisecond, nil
}

// gateFields is how many arguments a limit takes; see lua/limit_together.lua.
const gateFields = 7

// gateArgs returns the arguments for the limits of jobs, each once, and for each job which are its.
func gateArgs(jobs []Gated) (args []any, of []string) {
	type name struct{ rule, key, scope string }
	known := map[name]int{}
	for _, j := range jobs {
		var own []byte
		for _, g := range j.Gates {
			id := name{g.Rule, g.Key, g.Scope}
			n := known[id]
			if n == 0 {
				n = len(known) + 1
				known[id] = n
				args = append(args, g.args()...)
			}
			own = fmt.Appendf(own, " %d=%d", n, g.Cost)
		}
		of = append(of, string(own))
	}
	return args, of
}

func (g *Gate) args() []any {
	concurrency, every, action := "-", "-", "w"
	if g.Concurrency > 0 {
		concurrency = strconv.Itoa(g.Concurrency)
	}
	if g.Every > 0 {
		every = microseconds(g.Every)
	}
	if g.Ends {
		action = "e"
	} else if g.Replaces {
		action = "p"
	}
	return []any{g.Rule, g.Name(), g.Scope, concurrency, every, g.Burst, action}
}

// Name is what the limit counts by, without its scope.
func (g *Gate) Name() string { return g.Rule + ":" + g.Key }

// microseconds writes a duration with its fraction, as a rate of 7/1s takes 142857.142857 µs.
func microseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Nanoseconds())/1000, 'f', -1, 64)
}

// Override replaces values of a limit for some time.
type Override struct {
	// Name is the limit, or the limit, a colon and a key.
	Name  string
	Until time.Time
	// Concurrency, if not nil, is how many jobs may run; with 0 none begins.
	Concurrency *int
	// Every and Burst, if not 0, replace these values.
	Every time.Duration
	Burst int64
}

func (o *Override) text() string {
	fields := []string{strconv.FormatInt(o.Until.UnixMilli(), 10), "-", "-", "-"}
	if o.Concurrency != nil {
		fields[1] = strconv.Itoa(*o.Concurrency)
	}
	if o.Every > 0 {
		fields[2] = microseconds(o.Every)
	}
	if o.Burst > 0 {
		fields[3] = strconv.FormatInt(o.Burst, 10)
	}
	return strings.Join(fields, " ")
}

func parseOverride(name, text string) (o Override, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return o, false
	}
	ms, err := strconv.ParseInt(fields[0], 10, 64)
	o = Override{Name: name, Until: time.UnixMilli(ms)}
	if n, err := strconv.Atoi(fields[1]); err == nil {
		o.Concurrency = &n
	}
	if every, err := strconv.ParseFloat(fields[2], 64); err == nil {
		o.Every = time.Duration(every * 1000)
		o.Burst, _ = strconv.ParseInt(fields[3], 10, 64)
	}
	return o, err == nil
}

// SetLimit overrides a limit until a time. It replaces an earlier override of the same name.
func (s *Store) SetLimit(ctx context.Context, o Override) error {
	if err := s.db.Write.HSet(ctx, s.db.Key(keyLimits), o.Name, o.text()).Err(); err != nil {
		return fmt.Errorf("override of limit %q: %w", o.Name, err)
	}
	return s.retryLines(ctx, o.Name)
}

// CloseLimit lets no job of a limit's key begin until a time, or until a later one that was set before.
func (s *Store) CloseLimit(ctx context.Context, rule, key string, until time.Time) error {
	gate := Gate{Rule: rule, Key: key}
	if _, err := s.db.Eval(ctx, closeLimitScript, s.db.Key(keyClosed), []any{gate.Name(), until.UnixMilli()}); err != nil {
		return fmt.Errorf("limit %q: %w", gate.Name(), err)
	}
	return nil
}

// ResetLimit ends an override, and reports whether there was one.
func (s *Store) ResetLimit(ctx context.Context, name string) (bool, error) {
	n, err := s.db.Write.HDel(ctx, s.db.Key(keyLimits), name).Result()
	if err != nil {
		return false, fmt.Errorf("override of limit %q: %w", name, err)
	}
	closed, err := s.db.Write.HDel(ctx, s.db.Key(keyClosed), name).Result()
	if err == nil {
		err = s.retryLines(ctx, name)
	}
	if err != nil {
		return false, fmt.Errorf("override of limit %q: %w", name, err)
	}
	return n+closed > 0, nil
}

// retryLines makes the next poll try the jobs that wait for a limit.
func (s *Store) retryLines(ctx context.Context, name string) error {
	waiting, err := s.waitingGates(ctx)
	if err != nil {
		return err
	}
	var due []redis.Z
	for line := range waiting {
		if gate := line[1:]; gate == name || strings.HasPrefix(gate, name+":") {
			due = append(due, redis.Z{Member: line})
		}
	}
	if len(due) == 0 {
		return nil
	}
	return s.db.Write.ZAdd(ctx, s.db.Key(keyLimitDue), due...).Err()
}

// waitingGates returns the queues with a line for a limit, by the name of the line.
func (s *Store) waitingGates(ctx context.Context) (map[string][]string, error) {
	names, err := s.db.Read.SMembers(ctx, s.db.Key(keyGates)).Result()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	texts, err := s.db.Read.HMGet(ctx, s.db.Key(keyAwaited), names...).Result()
	if err != nil {
		return nil, fmt.Errorf("hash %s: %w", s.db.Key(keyAwaited), err)
	}
	out := map[string][]string{}
	for i, name := range names {
		if text, ok := texts[i].(string); ok && limitOf(name) != "" {
			out[name] = awaiting(text)
		}
	}
	return out, nil
}

// limitOf returns the limit that a line waits for: its name, a colon and the key; "" = the line waits for a lock.
func limitOf(line string) string {
	if strings.HasPrefix(line, fleetLine) || strings.HasPrefix(line, scopedLine) {
		return line[1:]
	}
	return ""
}

// heldPairs reads a list of held_pack in rdb/lua/lib/records.lua.
func heldPairs(text string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for text != "" {
			var k, v int
			head, rest, _ := strings.Cut(text, "\n")
			if _, err := fmt.Sscanf(head, "%d %d", &k, &v); err != nil || k < 0 || v < 0 || k+v > len(rest) || !yield(rest[:k], rest[k:k+v]) {
				return
			}
			text = rest[k+v:]
		}
	}
}

// Throttled returns how many jobs were over each limit when they were taken, by its name.
func (s *Store) Throttled(ctx context.Context) (map[string]int64, error) {
	counts, err := s.db.Read.HGetAll(ctx, s.db.Key(keyOver)).Result()
	if err != nil {
		return nil, fmt.Errorf("jobs over limits: %w", err)
	}
	return lineCounts(counts), nil
}

// LimitInfo is a limit's use.
type LimitInfo struct {
	// Gate is the limit's name, a colon and the key.
	Gate string
	// Running are the jobs that count under it, by scope ("" = the fleet).
	Running map[string][]RunName
	// Waiting is how many jobs wait for it, by queue.
	Waiting map[string]int64
	// Next is when the next of them may go, if that depends on a time.
	Next time.Time
}

// Total returns how many jobs run and how many wait.
func (l *LimitInfo) Total() (running, waiting int64) {
	for _, runs := range l.Running {
		running += int64(len(runs))
	}
	for _, n := range l.Waiting {
		waiting += n
	}
	return running, waiting
}

// Limits returns the limits that jobs run under or wait for, in order of their names, and all overrides, last the keys
// that jobs have closed.
func (s *Store) Limits(ctx context.Context) ([]LimitInfo, []Override, error) {
	found := map[string]*LimitInfo{}
	info := func(gate string) *LimitInfo {
		if found[gate] == nil {
			found[gate] = &LimitInfo{Gate: gate, Running: map[string][]RunName{}, Waiting: map[string]int64{}}
		}
		return found[gate]
	}
	procs, err := s.db.Read.ZRange(ctx, s.db.Key(keyProcs), 0, -1).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("limits: %w", err)
	}
	held, records := make([]*redis.MapStringStringCmd, len(procs)), make([]*redis.StringSliceCmd, len(procs))
	err = s.readEach(ctx, len(procs), func(pipe redis.Pipeliner, i int) {
		held[i], records[i] = pipe.HGetAll(ctx, s.db.Key(keySlots)+procs[i]), pipe.HKeys(ctx, s.db.Key(rdb.KeyInflight)+procs[i])
	})
	if err != nil {
		return nil, nil, fmt.Errorf("limits: %w", err)
	}
	for i, proc := range procs {
		for _, value := range held[i].Val() {
			tokens, text, _ := strings.Cut(value, "\n")
			for token := range strings.FieldsSeq(tokens) {
				if !slices.Contains(records[i].Val(), token) {
					continue // it has ended
				}
				for name, scope := range heldPairs(text) {
					if gate := limitOf(name); gate != "" {
						info(gate).Running[scope] = append(info(gate).Running[scope], RunName{Proc: proc, Token: token})
					}
				}
			}
		}
	}
	if err := s.limitLines(ctx, info); err != nil {
		return nil, nil, err
	}
	overrides, err := s.db.Read.HGetAll(ctx, s.db.Key(keyLimits)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("overrides of limits: %w", err)
	}
	closed, err := s.db.Read.HGetAll(ctx, s.db.Key(keyClosed)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("closed limits: %w", err)
	}
	var over []Override
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if o, ok := parseOverride(name, overrides[name]); ok {
			over = append(over, o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(closed)) {
		if ms, err := strconv.ParseInt(closed[name], 10, 64); err == nil && ms > time.Now().UnixMilli() {
			over = append(over, Override{Name: name, Until: time.UnixMilli(ms), Concurrency: new(0)})
		}
	}
	out := make([]LimitInfo, 0, len(found))
	for _, gate := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[gate])
	}
	return out, over, nil
}

// limitLines adds how many jobs wait for each limit.
func (s *Store) limitLines(ctx context.Context, info func(gate string) *LimitInfo) error {
	waiting, err := s.waitingGates(ctx)
	if err != nil {
		return err
	}
	type line struct{ name, queue string }
	var lines []line
	for name, queues := range waiting {
		for _, queue := range queues {
			lines = append(lines, line{name, queue})
		}
	}
	sizes, due := make([]*redis.IntCmd, len(lines)), make([]*redis.FloatCmd, len(lines))
	err = s.readEach(ctx, len(lines), func(pipe redis.Pipeliner, i int) {
		sizes[i], due[i] = pipe.LLen(ctx, s.db.LineKey(lines[i].queue, lines[i].name)), pipe.ZScore(ctx, s.db.Key(keyLimitDue), lines[i].name)
	})
	if err != nil {
		return fmt.Errorf("lines of limits: %w", err)
	}
	for i, l := range lines {
		if n := sizes[i].Val(); n > 0 {
			in := info(limitOf(l.name))
			in.Waiting[l.queue] += n
			if due[i].Err() == nil {
				in.Next = time.UnixMilli(int64(due[i].Val()))
			}
		}
	}
	return nil
}
