package store_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

var update = flag.Bool("update", false, "write the samples of the format that this version writes")

// samples names the file with the samples of a format.
func samples(format int) string {
	return filepath.Join("testdata", "formats", strconv.Itoa(format)+".golden")
}

const (
	goldenProc, goldenMaster  = "vm:b0:1-2:0.1", "vm:b0:1-2"
	goldenDone, goldenRefused = "DONE", "REFUSED" // orders
)

// writeSamples has the scripts write one of everything that other processes act upon.
func writeSamples(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque", Lease: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	const worker = "vm~resqued:1.0.0-2i6ujh:q:,q"
	register := func(proc string) {
		info := store.Policy{AtMostOnce: []string{"Once"}, MaxDeaths: 3, Resumes: []string{"Long"}}.Info()
		maps.Copy(info, map[string]string{"host": "vm", "pid": "9", "slot": "0", "master": goldenMaster, "version": "v1", "start": "5", "view": "v", "cgroup": "/g"})
		require.NoError(t, s.Register(t.Context(), store.Registration{Proc: proc, Workers: []string{worker}, Started: "now", Info: info}))
	}
	// A master, with an answer to an order; orders that wait for it, for all and for one process.
	_, err = s.PutMaster(t.Context(), store.MasterInfo{
		ID: goldenMaster, TTL: time.Minute, Answers: map[string]store.OrderAnswer{goldenDone: {Done: true, Text: "paused"}, goldenRefused: {Text: "it is draining"}},
		Fields: map[string]string{"host": "vm", "version": "v1", "shared": "d", "settings": "{}", "state": "running", store.FieldOrders: "1"},
	})
	require.NoError(t, err)
	for _, proc := range []string{"", goldenProc} {
		_, outcome, err := s.RequestOrder(t.Context(), goldenMaster, store.OrderRecycle, proc)
		require.NoError(t, err)
		require.Equal(t, store.OrderAsked, outcome)
	}
	push := func(queue string, payloads ...string) {
		for _, p := range payloads {
			_, err := s.Push(t.Context(), queue, []byte(p))
			require.NoError(t, err)
		}
	}
	sending := map[string]int64{}
	exchange := func(proc string, ends []store.Completion, queue store.Queue, tokens ...string) []store.Reserved {
		sending[proc]++
		req := store.ExchangeRequest{Proc: proc, Master: goldenMaster, Sending: sending[proc], Completions: ends, Queues: []store.Queue{queue}, Suspects: store.SetApart}
		for _, token := range tokens {
			req.Wants = append(req.Wants, store.Want{Token: token, Worker: worker})
		}
		reply, err := s.Exchange(t.Context(), req)
		require.NoError(t, err)
		return reply.Jobs
	}
	lose := func(proc string, action store.Action) {
		held, _, err := s.Fence(t.Context(), proc, true)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.NoError(t, s.Recover(t.Context(), proc, []store.Verdict{{Token: held[0].Token, Action: action}}))
	}
	// Records in flight: with a lock, with a cap, of a unique queue, of a job that has died.
	register(goldenProc)
	push("locked", `{"class":"A","args":[1]}`, `{"class":"A","args":[1]}`)
	require.Len(t, exchange(goldenProc, nil, store.Queue{Name: "locked", Locked: true}, "t1", "t2"), 1)
	push("capped", `{"class":"A","args":[2]}`)
	require.Len(t, exchange(goldenProc, nil, store.Queue{Name: "capped", Cap: 3}, "t3"), 1)
	_, err = s.PushUnique(t.Context(), "unique", false, []byte(`{"class":"A","args":[3]}`))
	require.NoError(t, err)
	require.Len(t, exchange(goldenProc, nil, store.Queue{Name: "unique", Unique: true}, "t4"), 1)
	push("deadly", `{"class":"A","args":[4]}`)
	register("vm:b0:1-2:0.2")
	require.Len(t, exchange("vm:b0:1-2:0.2", nil, store.Queue{Name: "deadly"}, "t1"), 1)
	lose("vm:b0:1-2:0.2", store.Requeue)
	require.Len(t, exchange(goldenProc, nil, store.Queue{Name: "deadly"}, "t5"), 1)
	// One that is set apart.
	push("suspect", `{"class":"A","args":[5]}`)
	register("vm:b0:1-2:0.3")
	require.Len(t, exchange("vm:b0:1-2:0.3", nil, store.Queue{Name: "suspect"}, "t1"), 1)
	lose("vm:b0:1-2:0.3", store.Suspect)
	require.Empty(t, exchange(goldenProc, nil, store.Queue{Name: "suspect"}, "t6"))
	// Class locks, and a loner that waits.
	_, err = s.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: store.HeldLock{Proc: goldenProc, Token: "t3", Key: "lock:A:x.", Timeout: time.Minute}, Queue: "capped", Payload: []byte(`{"class":"A","args":[2]}`)})
	require.NoError(t, err)
	_, err = s.EnqueueLoner(t.Context(), store.LonerRequest{Key: "lock:A:9", Queue: "loners", Payload: []byte(`{"class":"A","args":[9]}`)})
	require.NoError(t, err)
	// Requests to end jobs, and an answer.
	for _, token := range []string{"t4", "t5"} {
		_, err = s.RequestKill(t.Context(), store.RunName{Proc: goldenProc, Token: token}, store.KillRequest{Grace: time.Second, Requeue: token == "t5"})
		require.NoError(t, err)
	}
	push("q", `{"class":"A","args":[6]}`, `{"class":"A","args":[7]}`, `{"class":"A","args":[8]}`)
	jobs := exchange(goldenProc, nil, store.Queue{Name: "q"}, "t7", "t8", "t9")
	require.Len(t, jobs, 3)
	_, err = s.RequestKill(t.Context(), store.RunName{Proc: goldenProc, Token: "t7"}, store.KillRequest{Grace: time.Second})
	require.NoError(t, err)
	// Ends: one that was killed, one that waits, one that has no place, one too large for its record.
	require.NoError(t, client.Set(t.Context(), "resque:failed", "odd", 0).Err())
	reference := []byte(`{"payload":{"class":"Resqued::LargePayload"}}`)
	exchange(goldenProc, []store.Completion{
		{Job: &jobs[0], Kind: store.Done, Killed: true},
		{Job: &jobs[1], Kind: store.Requeued, Delay: time.Hour},
		{Job: &jobs[2], Kind: store.Failed, Failure: store.FiledFailure{Text: []byte(`{"payload":}`), Gap: 11}, Park: true},
	}, store.Queue{Name: "q"})
	require.NoError(t, client.Del(t.Context(), "resque:failed").Err())
	push("q", `{"class":"A","args":[10]}`)
	jobs = exchange(goldenProc, nil, store.Queue{Name: "q"}, "t10")
	exchange(goldenProc, []store.Completion{{Job: &jobs[0], Kind: store.Failed, Failure: store.FiledFailure{Reference: reference}}}, store.Queue{Name: "q"})
	replies := s.EnqueueLater(t.Context(), []store.LaterJob{
		{Queue: "q", Payload: []byte(`{"class":"A","args":[11],"id":"x"}`), In: time.Hour},
		{Queue: "unique", Payload: []byte(`{"class":"A","args":[12],"id":"x"}`), In: time.Hour, Unique: true},
	})
	for _, r := range replies {
		require.NoError(t, r.Err)
	}
	// Names of empty queues: one that goes, one that is looked at.
	require.NoError(t, client.SAdd(t.Context(), "resque:queues", "gone", "empty").Err())
	_, err = s.SweepQueues(t.Context(), goldenMaster, time.Minute, "")
	require.NoError(t, err)
	pruned, err := s.PruneIdle(t.Context(), "gone", 0)
	require.NoError(t, err)
	require.True(t, pruned)
	// Schedules.
	tick, err := s.Tick(t.Context(), store.TickRequest{Name: "nightly", Print: "x-y", Tick: time.Now().Add(-time.Second).Truncate(time.Second), Since: time.Now(), Jobs: 1, Queue: "cron", Payload: []byte(`{"class":"A","args":[]}`), IfRunning: "queue", Shown: "{}"})
	require.NoError(t, err)
	require.Equal(t, store.TickDone, tick.Status)
	_, err = s.Schedules(t.Context(), store.SchedulesRequest{Names: []string{"nightly"}, Prints: []string{"x-y"}, Keeper: "web-1"})
	require.NoError(t, err)
	// Long jobs: one in hand, with a state and a lock, one that waits, one in line.
	long := longstore.New(s.Redis())
	_, err = long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{
		{UUID: "u1", Kind: "k1", Class: "Long", Args: []byte("[1]"), Queue: "long"},
		{UUID: "u2", Kind: "k2", Class: "Long", Args: []byte("[2]"), Queue: "long", Tenant: "x"},
		{UUID: "u3", Kind: "k3", Class: "Long", Args: []byte("[3]"), Queue: "long", Tenant: "x"},
	})
	require.NoError(t, err)
	require.Len(t, exchange(goldenProc, nil, store.Queue{Name: "long"}, "t11"), 1)
	slice := longstore.Slice{UUID: "u1", Number: 1, Run: store.RunName{Proc: goldenProc, Token: "t11"}, Share: 1}
	run, err := long.Begin(t.Context(), slice)
	require.NoError(t, err)
	slice.Fence, err = strconv.ParseInt(run.Fields["fence"], 10, 64)
	require.NoError(t, err)
	_, err = long.Save(t.Context(), longstore.Save{Slice: slice, Op: longstore.GoesOn, Progress: true, Fields: map[string]string{"message": "m"}, Set: map[string]string{"s:key": "1"}})
	require.NoError(t, err)
	_, err = long.Lock(t.Context(), "lock", slice.Run)
	require.NoError(t, err)
	require.NoError(t, s.NoteEvent(t.Context(), store.Event{Kind: store.EventPurged, By: "alice@vm", Via: "cli", Subject: "queue q", Text: "with 3 jobs", Count: 3}))
	_, err = s.AddHistory(t.Context(), counted(t, 3))
	require.NoError(t, err)
	return client
}

// The numbers that differ from run to run, by their digits: seconds, milliseconds and
// microseconds since 1970.
var (
	goldenTimes = regexp.MustCompile(`\b[12]\d{9}(\d{3}){0,2}\b`)
	goldenIDs   = regexp.MustCompile(`later:[0-9a-f]{20}`)
	goldenOrder = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
)

func masked(text string) string {
	text = goldenOrder.ReplaceAllString(goldenIDs.ReplaceAllString(text, "later:<id>"), "<order>")
	return goldenTimes.ReplaceAllStringFunc(text, func(n string) string {
		return map[int]string{10: "<s>", 13: "<ms>", 16: "<us>"}[len(n)]
	})
}

// dumped returns all keys below resqued:, and the locks, one line for each entry.
func dumped(t *testing.T, client *redis.Client) string {
	t.Helper()
	ctx := t.Context()
	var lines []string
	add := func(key, kind, entry, value string) {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", masked(key), kind, masked(strconv.Quote(entry)), masked(strconv.Quote(value))))
	}
	for _, key := range client.Keys(ctx, "*").Val() {
		if !strings.HasPrefix(key, "resque:resqued:") && !strings.Contains(key, "lock") && !strings.HasPrefix(key, "resque:loner") {
			continue // Resque's, which have a golden file of Ruby's
		}
		switch kind := client.Type(ctx, key).Val(); kind {
		case "hash":
			for field, value := range client.HGetAll(ctx, key).Val() {
				if key == "resque:resqued:meta" && field == "id" {
					value = "random"
				}
				add(key, kind, field, value)
			}
		case "zset":
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				member, _ := z.Member.(string)
				add(key, kind, member, strconv.FormatFloat(z.Score, 'f', -1, 64))
			}
		case "set":
			for _, member := range client.SMembers(ctx, key).Val() {
				add(key, kind, member, "")
			}
		case "list":
			for i, value := range client.LRange(ctx, key, 0, -1).Val() {
				add(key, kind, strconv.Itoa(i), value)
			}
		case "stream":
			for _, entry := range client.XRange(ctx, key, "-", "+").Val() {
				fields, err := json.Marshal(entry.Values)
				require.NoError(t, err)
				add(key, kind, entry.ID, string(fields))
			}
		case "string":
			value := client.Get(ctx, key).Val()
			if strings.HasPrefix(key, "resque:resqued:hist:") {
				value = sparse(value)
			}
			add(key, kind, "", value)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n") + "\n"
}

// sparse is the length of a string, and its bytes that are not zero with their places.
func sparse(value string) string {
	text := fmt.Sprintf("%d bytes:", len(value))
	for i := range len(value) {
		if value[i] != 0 {
			text += fmt.Sprintf(" %d=%d", i, value[i])
		}
	}
	return text
}

// The samples define the format's number. If this fails, the data that other versions read has
// changed: CONTRIBUTING.md, "change a format in Redis", says what to do.
func TestFormatSamples(t *testing.T) {
	t.Parallel()
	got := dumped(t, writeSamples(t, redistest.Start(t, redistest.Options{})))
	file := samples(rdb.Known().Writes)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "what stands in Redis is no longer what format %d says; see CONTRIBUTING.md, \"change a format in Redis\"", rdb.Known().Writes)
}

// loadSamples puts the samples of a format into an empty server. Leases are past, orders are of now.
func loadSamples(t *testing.T, client *redis.Client, format int) {
	t.Helper()
	text, err := os.ReadFile(samples(format))
	require.NoError(t, err)
	now := time.Now().Add(-time.Hour)
	fill := strings.NewReplacer("<s>", strconv.FormatInt(now.Unix(), 10), "<ms>", strconv.FormatInt(now.UnixMilli(), 10), "<us>", strconv.FormatInt(now.UnixMicro(), 10), "<id>", "x")
	orders := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "resque:resqued:orders:") {
			orders++
			line = strings.NewReplacer("<order>", strconv.Itoa(orders), "<ms>", strconv.FormatInt(time.Now().UnixMilli(), 10)).Replace(line)
		}
		parts := strings.Split(fill.Replace(strings.TrimSuffix(line, "\n")), "\t")
		require.Len(t, parts, 4)
		entry, err := strconv.Unquote(parts[2])
		require.NoError(t, err)
		value, err := strconv.Unquote(parts[3])
		require.NoError(t, err)
		switch key := parts[0]; parts[1] {
		case "hash":
			err = client.HSet(t.Context(), key, entry, value).Err()
		case "zset":
			score, bad := strconv.ParseFloat(value, 64)
			require.NoError(t, bad)
			err = client.ZAdd(t.Context(), key, redis.Z{Score: score, Member: entry}).Err()
		case "stream":
			err = client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"text", value}}).Err()
		case "set":
			err = client.SAdd(t.Context(), key, entry).Err()
		case "list":
			err = client.RPush(t.Context(), key, value).Err()
		default:
			err = client.Set(t.Context(), key, value, 0).Err()
		}
		require.NoError(t, err)
	}
}

// This version reads the samples of every format that it says it reads, and loses none of
// their jobs.
func TestFormatSamplesAreRead(t *testing.T) {
	t.Parallel()
	for format := rdb.Known().Oldest; format <= rdb.Known().Newest; format++ {
		t.Run(strconv.Itoa(format), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			client := server.Client(t)
			loadSamples(t, client, format)
			s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			require.NoError(t, s.CheckFormat(t.Context()))

			masters, err := s.MasterList(t.Context())
			require.NoError(t, err)
			require.True(t, store.Readable(masters[goldenMaster]))
			for id, want := range map[string]store.OrderAnswer{goldenDone: {Done: true, Text: "paused"}, goldenRefused: {Text: "it is draining"}} {
				answer, there, err := s.OrderAnswered(t.Context(), goldenMaster, id)
				require.NoError(t, err)
				require.True(t, there)
				require.Equal(t, &want, answer)
			}
			orders, err := s.PutMaster(t.Context(), store.MasterInfo{ID: goldenMaster, TTL: time.Minute})
			require.NoError(t, err)
			require.ElementsMatch(t, []store.Order{{ID: "1", Verb: store.OrderRecycle}, {ID: "2", Verb: store.OrderRecycle, Proc: goldenProc}}, orders)
			kills, err := s.Kills(t.Context(), goldenProc)
			require.NoError(t, err)
			require.Equal(t, map[string]store.KillRequest{"t4": {Grace: time.Second}, "t5": {Grace: time.Second, Requeue: true}}, kills)
			policy, err := s.PolicyOf(t.Context(), goldenProc, store.Policy{})
			require.NoError(t, err)
			require.Equal(t, store.Policy{AtMostOnce: []string{"Once"}, MaxDeaths: 3, Resumes: []string{"Long"}}, policy)
			states, err := s.KillStates(t.Context(), []store.RunName{{Proc: goldenProc, Token: "t7"}})
			require.NoError(t, err)
			require.Equal(t, &store.KillAnswer{How: store.HowFinished}, states[0].Answer)
			schedules, err := s.Schedules(t.Context(), store.SchedulesRequest{Names: []string{"nightly"}, Prints: []string{"x-y"}})
			require.NoError(t, err)
			require.Equal(t, "x y", schedules.Records[0].Fingerprint+" "+schedules.Records[0].Job)

			parked, _, err := s.Parked(t.Context(), 9)
			require.NoError(t, err)
			var kinds []string
			for _, p := range parked {
				kinds = append(kinds, string(rune(p.Kind))+" "+p.Queue)
			}
			require.ElementsMatch(t, []string{"f q", "l q"}, kinds)
			moved, err := s.Unpark(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, moved)
			require.Equal(t, []string{`{"payload":{"class":"A","args":[8]}}`}, client.LRange(t.Context(), "resque:failed", 0, -1).Val())
			due, err := s.MoveDue(t.Context(), "", func(queue string) bool { return queue == "unique" })
			require.NoError(t, err)
			require.Empty(t, due.Malformed)
			require.Equal(t, 3, due.Moved)

			long := longstore.New(s.Redis())
			run, err := long.Run(t.Context(), "u1")
			require.NoError(t, err)
			require.Equal(t, []string{"running", "Long", "m"}, []string{run.Fields["status"], run.Fields["class"], run.Fields["message"]})
			require.Equal(t, map[string]string{"s:key": "1"}, run.State)

			held, bad, err := s.Fence(t.Context(), goldenProc, true)
			require.NoError(t, err)
			require.Empty(t, bad)
			var verdicts []store.Verdict
			tokens := map[string]store.Reserved{}
			for _, job := range held {
				tokens[job.Token] = job
				verdicts = append(verdicts, store.Verdict{Token: job.Token, Action: store.Requeue})
			}
			require.Len(t, tokens, 5)
			require.NotEmpty(t, tokens["t1"].LockKey)
			require.Positive(t, tokens["t1"].Fence)
			require.True(t, tokens["t3"].Capped)
			require.True(t, tokens["t4"].Unique)
			require.Equal(t, 1, tokens["t5"].Deaths)
			require.NoError(t, s.Recover(t.Context(), goldenProc, verdicts))
			for queue, payload := range map[string]string{
				"locked": `{"class":"A","args":[1]}`, "capped": `{"class":"A","args":[2]}`, "deadly": `{"class":"A","args":[4]}`, "q": `{"class":"A","args":[7]}`,
			} {
				require.Contains(t, client.LRange(t.Context(), "resque:queue:"+queue, 0, -1).Val(), payload, queue)
			}
			require.ElementsMatch(t, []string{`{"class":"A","args":[3]}`, `{"class":"A","args":[12],"id":"x"}`}, client.SMembers(t.Context(), "resque:queue:unique:uniqueue").Val())
			for _, key := range []string{"locket:job_locks:A[1]", "lock:A:x.", "resqued:held:" + goldenProc, "resqued:caps:" + goldenMaster, "resqued:proc:" + goldenProc} {
				require.Zero(t, client.Exists(t.Context(), "resque:"+key).Val(), key)
			}
			// The suspect is there for who runs it alone.
			require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "new", Workers: []string{"w:1:q"}}))
			reply, err := s.Exchange(t.Context(), store.ExchangeRequest{
				Proc: "new", Master: goldenMaster, Sending: 1, Wants: []store.Want{{Token: "1", Worker: "w:1:q"}}, Queues: []store.Queue{{Name: "suspect"}}, Suspects: store.OnlySuspects,
			})
			require.NoError(t, err)
			require.Len(t, reply.Jobs, 1)
			require.Equal(t, 1, reply.Jobs[0].Blame)
		})
	}
}
