package store_test

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// budget is what a locked job may cost when so many end and begin in one exchange.
// These are counts, which no busy machine changes; raise one only for a reason.
type budget struct {
	batch int
	// commands that Redis carries out for a job, inside of the script and outside.
	commands float64
	// bytes that go over the socket for a job, both ways together.
	bytes float64
	// mallocs in Go for a job, from the request to the jobs in the reply; a few more
	// with the race detector, for which there is room.
	mallocs float64
	// stale: counts of deaths are there, of jobs that are not.
	stale bool
}

// TestExchangeBudget keeps the hot path from growing unseen. It is not parallel:
// it counts every allocation of the process.
func TestExchangeBudget(t *testing.T) {
	for _, b := range []budget{
		{batch: 1, commands: 13, bytes: 621, mallocs: 32},
		{batch: 10, commands: 1.6, bytes: 325, mallocs: 5.9},
		{batch: 50, commands: 0.36, bytes: 298, mallocs: 3.6},
		{batch: 50, commands: 0.5, bytes: 298, mallocs: 3.6, stale: true},
	} {
		t.Run(fmt.Sprintf("batches of %d, stale counts %v", b.batch, b.stale), func(t *testing.T) { b.check(t) })
	}
}

// TestLinesBudget keeps a backlog behind one lock as cheap as it is: each call ends one job and
// begins the next of its line.
func TestLinesBudget(t *testing.T) {
	t.Parallel()
	const jobs = 50
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", lockmates("A", jobs+70)...)
	held := f.turn(8, f.turn(8, nil, "q"), "q")
	before := server.Commands(t)
	for range jobs {
		held = f.turn(8, held, "q")
		require.Len(t, held, 1)
	}
	got := float64(server.Commands(t)-before-1) / jobs
	t.Logf("%.2f commands for a job", got)
	require.LessOrEqual(t, got, 16.1)
}

// load is a process that ends as many locked jobs in each exchange as it begins. All
// queues have as many jobs as each other or, with last, the last one has all. A limit is the cap of each.
func load(t *testing.T, server *redistest.Server, batch, jobs, queues int, last bool, limit int) (exchange func()) {
	t.Helper()
	s, err := store.Open(store.Options{URL: server.SocketURL(), Namespace: "resque", Lease: time.Hour, LockTTL: store.DefaultLease}) // valgrind takes its time
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	worker := "host-1/0.12:4711:q"
	require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "host-1-0a1b2c3d-4711-0123456789ab", Workers: []string{worker}}))
	payloads := make([][]byte, jobs+2*batch)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, `{"class":"Mail","args":[%d,"a subject of some length"]}`, 100000+i)
	}
	from, candidates := 0, make([]store.Queue, queues)
	for i := range candidates {
		candidates[i] = store.Queue{Name: "q" + strconv.Itoa(i), Locked: true, Cap: limit}
		to := len(payloads) * (i + 1) / queues
		if last && i < queues-1 {
			to = 0
		}
		if from < to {
			_, err = s.Push(t.Context(), candidates[i].Name, payloads[from:to]...)
			require.NoError(t, err)
			from = to
		}
	}
	token, empty, held := 100000, 0, []store.Reserved(nil)
	return func() {
		req := store.ExchangeRequest{Proc: "host-1-0a1b2c3d-4711-0123456789ab", Master: "host-1-0a1b2c3d-4700-0123456789ab", Queues: candidates}
		req.Completions = make([]store.Completion, 0, len(held))
		for i := range held {
			req.Completions = append(req.Completions, store.Completion{Job: &held[i], Kind: store.Done})
		}
		req.Wants = make([]store.Want, 0, batch)
		for range batch {
			token++
			req.Wants = append(req.Wants, store.Want{Token: strconv.Itoa(token), Worker: worker})
		}
		req.Empty = empty
		reply, err := s.Exchange(t.Context(), req)
		if err != nil || len(reply.Jobs) != batch {
			t.Fatalf("%d jobs, %v", len(reply.Jobs), err)
		}
		held = reply.Jobs
		empty = slices.IndexFunc(candidates, func(q store.Queue) bool { return q.Name == held[0].Queue })
	}
}

// stale leaves counts of deaths in a queue as they are where strangers have taken its jobs.
func stale(t *testing.T, client *redis.Client, queue string) {
	t.Helper()
	now := float64(time.Now().UnixMilli())
	for i := range 100 {
		sum := fmt.Sprintf("%040x", i)
		require.NoError(t, client.HSet(t.Context(), "resque:resqued:deaths:"+queue, sum, "1 1").Err())
		require.NoError(t, client.ZAdd(t.Context(), "resque:resqued:died:"+queue, redis.Z{Score: now, Member: sum}).Err())
	}
	require.NoError(t, client.ZAdd(t.Context(), "resque:resqued:deaths", redis.Z{Score: now, Member: queue}).Err())
}

func (b budget) check(t *testing.T) {
	const jobs = 2000
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	exchange := load(t, server, b.batch, jobs, 1, false, 0)
	exchange() // loads the script
	if b.stale {
		stale(t, client, "q0")
	}

	snapshot := func() (commands, bytes float64) {
		text := client.Info(t.Context(), "stats").Val()
		figure := func(name string) float64 {
			found := regexp.MustCompile(name + `:(\d+)`).FindStringSubmatch(text)
			require.NotNil(t, found, name)
			n, err := strconv.ParseFloat(found[1], 64)
			require.NoError(t, err)
			return n
		}
		return figure("total_commands_processed"), figure("total_net_input_bytes") + figure("total_net_output_bytes")
	}
	_, asked := snapshot()
	commands, bytes := snapshot()
	asked = bytes - asked // what asking costs
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range jobs / b.batch {
		exchange()
	}
	runtime.ReadMemStats(&after)
	commandsAfter, bytesAfter := snapshot()
	got := budget{
		b.batch, (commandsAfter - commands - 1) / jobs, (bytesAfter - bytes - asked) / jobs,
		float64(after.Mallocs-before.Mallocs) / jobs, b.stale,
	}
	t.Logf("%+v", got)
	require.LessOrEqual(t, got.commands, b.commands*1.01, "commands of Redis for a job")
	require.LessOrEqual(t, got.bytes, b.bytes*1.02, "bytes for a job")
	if !raced {
		require.LessOrEqual(t, got.mallocs, b.mallocs*1.05, "allocations in Go for a job")
	}
}
