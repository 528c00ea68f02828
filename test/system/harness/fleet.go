package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Fleet is how much FillFleet writes.
type Fleet struct {
	// Masters have Slots processes of Threads threads each.
	Masters, Slots, Threads int
	// Running jobs are in hand, each in its own process.
	Running int
	// Queues hold Waiting jobs in total, half of them in the first one.
	Queues, Waiting int
	// Failures are records of about 1.2 KB.
	Failures int
}

// FleetSpace is the namespace of FillFleet.
const FleetSpace = "fleet"

// FleetQueue is the name of a queue of a fleet.
func FleetQueue(i int) string { return fmt.Sprintf("queue-%04d", i) }

// pipes is how many commands are sent at a time.
const pipes = 5000

// FillFleet writes the data of a large fleet to Redis, in the real formats, but without any
// process. No lease ends within an hour.
func FillFleet(tb testing.TB, db *redis.Client, f Fleet) {
	tb.Helper()
	ctx := context.Background()
	pipe := db.Pipeline()
	flush := func(least int) {
		if pipe.Len() >= least {
			if _, err := pipe.Exec(ctx); err != nil {
				tb.Fatalf("fill the fleet: %v", err)
			}
		}
	}
	key := func(parts ...string) string { return FleetSpace + ":" + strings.Join(parts, "") }
	now := time.Now()
	lease := float64(now.Add(time.Hour).UnixMilli())
	payload := func(n int) string { return fmt.Sprintf(`{"class":"Report","args":[%d,"monthly"]}`, n) }

	format := rdb.Known()
	formats := []any{"format", format.Writes, "reads", fmt.Sprintf("%d-%d", format.Oldest, format.Newest)}
	queues := []string{"queue-*"}
	running, jobs := f.Running, 0
	for m := range f.Masters {
		host, pid := fmt.Sprintf("worker-%03d.example.com", m/8), 1000+m
		master := fmt.Sprintf("%s:0b5d3c1e:%d-%d", host, pid, 500_000+m)
		pipe.SAdd(ctx, key("resqued:masters"), master)
		pipe.HSet(ctx, key("resqued:master:", master), append([]any{
			"host", host, "pid", pid, "state", "running", "slots", f.Slots, "threads", f.Threads, "ready", f.Slots, "busy", f.Slots, "done", 100 * m,
			"orders", 1, "queues", strings.Join(queues, ","), "version", "v1.4.0", "jobs_per_fork", 500, "config", "6a3f09b1c2d4", "lease_ms", 60_000, "term_timeout_ms", 60_000,
		}, formats...)...)
		for slot := range f.Slots {
			proc, child := fmt.Sprintf("%s:%d.%d", master, slot, 7), 20_000+m*f.Slots+slot
			pipe.ZAdd(ctx, key("resqued:procs"), redis.Z{Score: lease + float64(slot), Member: proc})
			pipe.HSet(ctx, key("resqued:proc:", proc), append([]any{
				"host", host, "pid", child, "slot", slot, "threads", f.Threads, "quota", 500, "master", master, "queues", strings.Join(queues, ","), "version", "v1.4.0",
				"busy", 1, "done", (m*f.Slots + slot) % 500, "rss", (40 + slot) << 20, "started", wire.FormatISOUTC(now), "state", "running",
				"on_worker_death", "requeue", "max_deaths", 3, "at_most_once", "[]", "resumes", "[]",
			}, formats...)...)
			ids := make([]any, f.Threads)
			for thread := range ids {
				id := wire.WorkerID(proc, host, slot, thread, child, queues)
				ids[thread] = id
				pipe.Set(ctx, key("worker:", id, ":started"), wire.FormatStart(now), 0)
			}
			pipe.SAdd(ctx, key("workers"), ids...)
			if jobs < running {
				token, worker, queue := fmt.Sprintf("%s-%d", "k3v9", jobs), fmt.Sprint(ids[0]), FleetQueue(jobs%f.Queues)
				lock := key("locket:job_locks:", fmt.Sprintf(`Report[%d,"monthly"]`, jobs))
				began := now.Add(-time.Duration(jobs) * time.Second)
				record := fmt.Sprintf("3 %d %d %d 0 %d 0 0 %d -\n%s%s%s%s", len(queue), len(worker), len(lock), jobs+1, began.UnixMilli(), queue, worker, lock, payload(jobs))
				if _, err := store.ParseRecord(token, record); err != nil {
					tb.Fatal(err)
				}
				pipe.HSet(ctx, key("resqued:inflight:", proc), token, record)
				pipe.Set(ctx, lock, "resqued:"+proc+"#"+token, time.Hour)
				pipe.Set(ctx, key("worker:", worker), wire.Running(queue, began, "Report", []byte(payload(jobs))), 0)
				jobs++
			}
			flush(pipes)
		}
	}
	pipe.Set(ctx, key("stat:processed"), 123_456_789, 0)
	pipe.Set(ctx, key("stat:failed"), f.Failures, 0)
	for q := range f.Queues {
		pipe.SAdd(ctx, key("queues"), FleetQueue(q))
	}
	flush(1)
	fillQueues(tb, db, f, payload)

	for n := 0; n < f.Failures; n += 500 {
		records := make([]any, 0, 500)
		for i := n; i < min(n+500, f.Failures); i++ {
			records = append(records, fleetFailure(i, now, payload(i)))
		}
		pipe.RPush(ctx, key("failed"), records...)
		flush(4)
	}
	flush(1)
}

// fillQueues makes Redis repeat a few payloads: sending each would take minutes.
func fillQueues(tb testing.TB, db *redis.Client, f Fleet, payload func(n int) string) {
	tb.Helper()
	many := redis.NewScript(`
local some, left = {}, tonumber(ARGV[1])
for i = 1, 500 do some[i] = ARGV[2 + i % (#ARGV - 1)] end
while left > 0 do
  redis.call('RPUSH', KEYS[1], unpack(some, 1, math.min(left, 500)))
  left = left - 500
end`)
	push := func(q, n int) {
		for ; n > 0; n -= min(n, 500_000) {
			if err := many.Run(context.Background(), db, []string{FleetSpace + ":queue:" + FleetQueue(q)}, min(n, 500_000), payload(q), payload(q+1), payload(q+2)).Err(); err != nil && !errors.Is(err, redis.Nil) {
				tb.Fatalf("fill %s: %v", FleetQueue(q), err)
			}
		}
	}
	rest := f.Waiting / 2
	push(0, f.Waiting-rest)
	for q := 1; q < f.Queues; q++ {
		push(q, rest/(f.Queues-1))
	}
}

func fleetFailure(n int, now time.Time, payload string) string {
	random := rand.New(rand.NewPCG(uint64(n), 7)) //nolint:gosec // the same records in each run
	classes, exceptions := []string{"Report", "Mail", "Import", "Thumbnail", "Sync"}, []string{"Timeout::Error", "RuntimeError", "PG::ConnectionBad", "Errno::ECONNRESET"}
	frames := make([]string, 9)
	for i := range frames {
		frames[i] = fmt.Sprintf("/srv/app/releases/20261120/app/services/report/part_%d.rb:%d:in `block in perform_part_%d'", i, 10+random.IntN(400), i)
	}
	class := classes[random.IntN(len(classes))]
	return string(wire.Failure{
		FailedAt: now.Add(time.Duration(n-2_000_000) * time.Second), Payload: []byte(strings.Replace(payload, "Report", class, 1)), Exception: exceptions[random.IntN(len(exceptions))],
		Error: "no answer from 10.0.0." + strconv.Itoa(random.IntN(250)) + " after " + strconv.Itoa(random.IntN(30_000)) + " ms", Backtrace: frames,
		Worker: fmt.Sprintf("worker-%03d~resqued:%d.0.3-2i6ujh:queue-*:,queue-**", n%80, 20_000+n%5000), Queue: FleetQueue(n % 300),
	}.Encode())
}
