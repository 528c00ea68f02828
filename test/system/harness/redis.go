package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// Key returns the name of a key in the daemon's namespace.
func (d *Daemon) Key(name string) string { return d.Space + ":" + name }

// Push enqueues jobs as Ruby's Resque does: one payload per number, which is the
// job's first argument.
func (d *Daemon) Push(queue, class string, ids ...int) {
	d.tb.Helper()
	payloads := make([]string, len(ids))
	for i, id := range ids {
		payloads[i] = fmt.Sprintf(`{"class":%q,"args":[%d]}`, class, id)
	}
	d.PushRaw(queue, payloads...)
}

// PushRaw enqueues payloads unchanged.
func (d *Daemon) PushRaw(queue string, payloads ...string) {
	d.tb.Helper()
	ctx := context.Background()
	values := make([]any, len(payloads))
	for i, p := range payloads {
		values[i] = p
	}
	err := errors.Join(
		d.Client.SAdd(ctx, d.Key("queues"), queue).Err(),
		d.Client.RPush(ctx, d.Key("queue:"+queue), values...).Err())
	if err != nil {
		d.tb.Fatalf("push: %v", err)
	}
}

// Range returns the numbers from first to last.
func Range(first, last int) []int {
	ids := make([]int, 0, last-first+1)
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

// Open lets every Gate and Stubborn job end.
func (d *Daemon) Open() {
	d.tb.Helper()
	if err := d.Client.Set(context.Background(), d.Key("test:open"), 1, 0).Err(); err != nil {
		d.tb.Fatal(err)
	}
}

// Shut makes the Gate and Stubborn jobs wait again.
func (d *Daemon) Shut() {
	d.tb.Helper()
	if err := d.Client.Del(context.Background(), d.Key("test:open")).Err(); err != nil {
		d.tb.Fatal(err)
	}
}

// Noted returns the counts that the handlers of the test program have written, by job: how often
// it "started" or "ran".
func (d *Daemon) Noted(kind string) map[string]string {
	d.tb.Helper()
	noted, err := d.Client.HGetAll(context.Background(), d.Key("test:"+kind)).Result()
	if err != nil {
		d.tb.Fatal(err)
	}
	return noted
}

// AwaitNoted waits until n different jobs have a count of that kind.
func (d *Daemon) AwaitNoted(kind string, n int) {
	d.tb.Helper()
	var last int64
	ok := proctest.Within(patience, func() bool {
		last = d.Client.HLen(context.Background(), d.Key("test:"+kind)).Val()
		return last >= int64(n)
	})
	if !ok {
		d.tb.Fatalf("%d jobs have %s instead of %d within %s\n%s", last, kind, n, patience, d.describe())
	}
}

// Failure is an entry of the failed list.
type Failure struct {
	Exception string          `json:"exception"`
	Error     string          `json:"error"`
	Queue     string          `json:"queue"`
	Worker    string          `json:"worker"`
	FailedAt  string          `json:"failed_at"`
	Backtrace []string        `json:"backtrace"`
	Attempts  int             `json:"attempts"`
	Payload   json.RawMessage `json:"payload"`
}

// Failures returns the entries of the failed list, oldest first.
func (d *Daemon) Failures() []Failure {
	d.tb.Helper()
	raw, err := d.Client.LRange(context.Background(), d.Key("failed"), 0, -1).Result()
	if err != nil {
		d.tb.Fatal(err)
	}
	failures := make([]Failure, len(raw))
	for i, text := range raw {
		if err := json.Unmarshal([]byte(text), &failures[i]); err != nil {
			d.tb.Fatalf("failure %q: %v", text, err)
		}
	}
	return failures
}

// AwaitFailures waits until n jobs have failed and returns their entries.
func (d *Daemon) AwaitFailures(n int) []Failure {
	d.tb.Helper()
	var last int64
	ok := proctest.Within(patience, func() bool {
		last = d.Client.LLen(context.Background(), d.Key("failed")).Val()
		return last >= int64(n)
	})
	if !ok {
		d.tb.Fatalf("%d jobs have failed instead of %d within %s\n%s", last, n, patience, d.describe())
	}
	return d.Failures()
}

// Snapshot holds the number of jobs in each state at one instant. Suspects and jobs in lines
// count as queued.
type Snapshot struct {
	Queued, InFlight, Delayed, Processed, Failed int64
}

// Jobs returns the number of all jobs, each of which is in exactly one state. Failed jobs are
// included in Processed.
func (s Snapshot) Jobs() int64 { return s.Queued + s.InFlight + s.Delayed + s.Processed }

// snapshot is a script in order to see one instant. It finds in-flight records by name, so that
// records of unregistered processes count, too.
var snapshot = redis.NewScript(`
local p = ARGV[1] .. ':'
local queued, inflight = 0, 0
for _, q in ipairs(redis.call('SMEMBERS', p .. 'queues')) do
  queued = queued + redis.call('LLEN', p .. 'queue:' .. q) + redis.call('LLEN', p .. 'resqued:suspects:' .. q)
end
for _, kind in ipairs({'line', 'turn'}) do
  for _, key in ipairs(redis.call('KEYS', p .. 'resqued:' .. kind .. ':*')) do queued = queued + redis.call('LLEN', key) end
end
for _, key in ipairs(redis.call('KEYS', p .. 'resqued:inflight:*')) do inflight = inflight + redis.call('HLEN', key) end
local failed = redis.pcall('LLEN', p .. 'failed') -- a test may have put something else there
local delayed = redis.call('ZCARD', p .. 'resqued:delayed')
for _, key in ipairs(redis.call('KEYS', p .. 'delayed:*')) do -- schedules have one that is not a list
  local n = redis.pcall('LLEN', key)
  if type(n) == 'number' then delayed = delayed + n end
end
return {queued, inflight, delayed,
  tonumber(redis.call('GET', p .. 'stat:processed') or 0), type(failed) == 'number' and failed or 0}`)

// Snapshot counts the jobs at one instant.
func (d *Daemon) Snapshot() Snapshot {
	d.tb.Helper()
	s, err := d.snapshot()
	if err != nil {
		d.tb.Fatal(err)
	}
	return s
}

func (d *Daemon) snapshot() (Snapshot, error) {
	n, err := snapshot.Run(context.Background(), d.Client, nil, d.Space).Int64Slice()
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	return Snapshot{Queued: n[0], InFlight: n[1], Delayed: n[2], Processed: n[3], Failed: n[4]}, nil
}

// Conserve checks repeatedly, until stop is called, that total jobs exist, each of them either
// queued, in flight, delayed or processed. stop returns the number of checks.
func (d *Daemon) Conserve(total int64) (stop func() int) {
	quit, looked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { looked <- n }()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			s, err := d.snapshot()
			if err != nil || s.Jobs() != total {
				d.tb.Errorf("%d jobs were pushed, of which can be seen: %+v (%v)", total, s, err)
				<-quit
				return
			}
			n++
		}
	}()
	return func() int {
		close(quit)
		return <-looked
	}
}

// AwaitProcessed waits until n jobs are processed, including failed ones.
func (d *Daemon) AwaitProcessed(n int64, limit time.Duration) {
	d.tb.Helper()
	var last string
	ok := proctest.Within(limit, func() bool {
		last = d.Client.Get(context.Background(), d.Key("stat:processed")).Val()
		return last == strconv.FormatInt(n, 10)
	})
	if !ok {
		d.tb.Fatalf("%s jobs are processed instead of %d after %s\n%s", last, n, limit, d.describe())
	}
}

// Keys returns all keys of the daemon's namespace that match a pattern.
func (d *Daemon) Keys(pattern string) []string {
	d.tb.Helper()
	var keys []string
	scan := d.Client.Scan(context.Background(), 0, d.Key(pattern), 1000).Iterator()
	for scan.Next(context.Background()) {
		keys = append(keys, strings.TrimPrefix(scan.Val(), d.Space+":"))
	}
	if err := scan.Err(); err != nil {
		d.tb.Fatal(err)
	}
	return keys
}

// ForgetMasters declares that a master of this namespace was killed, so that Residue ignores its
// entry, which expires.
func (d *Daemon) ForgetMasters() { d.forgetMasters = true }

// lockPatterns match the keys of the lock layer, except for those of waiting jobs.
var lockPatterns = []string{
	"locket:*", "lock:*", "loner:*", "resqued:held:*", "resqued:seen:*", "resqued:blocked:*",
}

// Residue returns what an ended daemon must not leave: processes, records of jobs in flight,
// locks, and registrations.
func (d *Daemon) Residue() []string {
	d.tb.Helper()
	var left []string
	for _, p := range d.Processes() {
		left = append(left, "process "+p.String())
	}
	patterns := []string{
		"resqued:inflight:*", "resqued:proc:*", "resqued:caps:*", "resqued:kills:*", "resqued:slots:*", "resqued:limit:*",
		"worker:*", "stat:processed:*", "stat:failed:*",
	}
	patterns = append(patterns, lockPatterns...)
	sets := []string{"workers", "resqued:procs"}
	if !d.forgetMasters {
		patterns = append(patterns, "resqued:master:*")
		sets = append(sets, "resqued:masters")
	}
	for _, pattern := range patterns {
		left = append(left, d.Keys(pattern)...)
	}
	for _, key := range sets {
		var members []string
		switch d.Client.Type(context.Background(), d.Key(key)).Val() {
		case "set":
			members = d.Client.SMembers(context.Background(), d.Key(key)).Val()
		case "zset":
			members = d.Client.ZRange(context.Background(), d.Key(key), 0, -1).Val()
		}
		for _, member := range members {
			left = append(left, key+" has "+member)
		}
	}
	return left
}
