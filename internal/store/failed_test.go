package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// all are all records of failed.
func all(t *testing.T, s *store.Store) *store.FailedTargets {
	t.Helper()
	return those(t, s, func(string) bool { return true })
}

func those(t *testing.T, s *store.Store, want func(record string) bool) *store.FailedTargets {
	t.Helper()
	var targets store.FailedTargets
	require.NoError(t, s.ScanFailed(t.Context(), "failed", func(index int64, record []byte) bool {
		if want(string(record)) {
			targets.Add(index, record)
		}
		return true
	}))
	return &targets
}

// whole are all records of failed at one time.
func (f *fixture) whole() store.WholeFailures {
	f.t.Helper()
	w, err := f.WholeFailed(f.t.Context(), "failed")
	require.NoError(f.t, err)
	return w
}

type toldEdit struct {
	record string
	what   store.FailedOutcome
}

// edit makes edits of all records, removing them if remove says so.
func (f *fixture) edit(targets *store.FailedTargets, remove bool, do func(record []byte) store.FailedEdit) []toldEdit {
	f.t.Helper()
	var out []toldEdit
	require.NoError(f.t, f.EditFailed(f.t.Context(), store.FailedWork{
		List: "failed", Targets: targets, Remove: remove, Edit: do,
		Done: func(record []byte, _ store.FailedEdit, what store.FailedOutcome) {
			out = append(out, toldEdit{string(record), what})
		},
	}))
	return out
}

func (f *fixture) fail(records ...string) {
	f.t.Helper()
	for some := range slices.Chunk(records, 1000) {
		require.NoError(f.t, f.redis.RPush(f.t.Context(), f.key("failed"), anys(some)...).Err())
	}
}

func numberedRecords(n int) []string {
	records := make([]string, n)
	for i := range n {
		records[i] = fmt.Sprint(i)
	}
	return records
}

func retryEdit(record []byte) store.FailedEdit {
	return store.FailedEdit{Instead: append(slices.Clone(record), '!'), Queue: "q", Payload: append([]byte("job "), record...), Unique: true}
}

func removeEdit([]byte) store.FailedEdit { return store.FailedEdit{Remove: true} }

func TestEditFailed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for name, near := range map[string]int64{"where they stand": 0, "by sifting": 1} {
			setup := func(t *testing.T) *fixture {
				t.Helper()
				f := setup(t, server)
				store.NearEnd(f.Store, near)
				return f
			}
			t.Run(name, func(t *testing.T) { testEditFailed(t, setup) })
		}
	})
}

func testEditFailed(t *testing.T, setup func(t *testing.T) *fixture) {
	t.Run("a retried record stays and its job is pushed", func(t *testing.T) {
		f := setup(t)
		records := append([]string{"1", "2", "3"}, numberedRecords(40)[4:]...)
		f.fail(records...)
		f.pushUnique("q", "job 3")
		want := those(t, f.Store, func(record string) bool { return record != "2" })
		out := f.edit(want, false, retryEdit)
		require.Len(t, out, 38)
		require.Equal(t, []toldEdit{{"1", store.FailedDone}, {"3", store.FailedDuplicate}, {"4", store.FailedDone}}, out[:3])
		require.Equal(t, []string{"1!", "2", "3!", "4!"}, f.list("failed")[:4])
		require.Len(t, f.list("failed"), 39)
		require.Equal(t, []string{"job 3", "job 1", "job 4"}, f.list("queue:q")[:3])
		f.inStep("q")
		require.Equal(t, []string{"q"}, f.redis.SMembers(t.Context(), f.key("queues")).Val())
		require.False(t, f.exists("resqued:sifting"))
		require.False(t, f.exists("resqued:passed:failed"))
	})
	t.Run("removed records go, over many pages", func(t *testing.T) {
		f := setup(t)
		f.fail(numberedRecords(1000)...)
		third := func(record string) bool { return strings.HasSuffix(record, "3") }
		require.Len(t, f.edit(those(t, f.Store, third), true, removeEdit), 100)
		require.Equal(t, slices.DeleteFunc(numberedRecords(1000), third), f.list("failed"))
		require.Len(t, f.edit(all(t, f.Store), true, removeEdit), 900)
		require.False(t, f.exists("failed"))
		require.False(t, f.exists("resqued:sifting"))
	})
	t.Run("of equal records as many as are meant", func(t *testing.T) {
		f := setup(t)
		f.fail("a", "b", "a", "b", "a", "c")
		var targets store.FailedTargets
		targets.Add(2, []byte("a"))
		f.edit(&targets, true, removeEdit)
		require.ElementsMatch(t, []string{"a", "b", "b", "a", "c"}, f.list("failed"))
		f.edit(those(t, f.Store, func(record string) bool { return record == "b" }), false, retryEdit)
		require.ElementsMatch(t, []string{"a", "b!", "b!", "a", "c"}, f.list("failed"))
	})
	t.Run("one that moved is found, one that has gone or changed is left alone", func(t *testing.T) {
		f := setup(t)
		f.fail("1", "2", "3", "4")
		first := true
		targets := all(t, f.Store)
		out := f.edit(targets, false, func(record []byte) store.FailedEdit {
			if first {
				first = false
				f.redis.LPop(t.Context(), f.key("failed"))
				f.redis.LSet(t.Context(), f.key("failed"), 2, "4, by somebody else")
			}
			return retryEdit(record)
		})
		require.ElementsMatch(t, []toldEdit{{"2", 'r'}, {"3", 'r'}, {"", 'g'}, {"", 'g'}}, out)
		require.Equal(t, []string{"2!", "3!", "4, by somebody else"}, f.list("failed"))
		require.Len(t, f.list("queue:q"), 2)
	})
	t.Run("others add, retry and remove meanwhile", func(t *testing.T) {
		f := setup(t)
		f.fail(numberedRecords(600)...)
		n := 0
		out := f.edit(those(t, f.Store, func(record string) bool { return strings.HasSuffix(record, "7") }), true, func(record []byte) store.FailedEdit {
			// As a worker and Ruby's page do it.
			n++
			f.redis.RPush(t.Context(), f.key("failed"), fmt.Sprintf("new %d", n))
			f.redis.LSet(t.Context(), f.key("failed"), 0, "")
			f.redis.LRem(t.Context(), f.key("failed"), 1, "")
			f.redis.LSet(t.Context(), f.key("failed"), int64(-n-1), fmt.Sprintf("retried %d", n))
			return removeEdit(record)
		})
		left := f.list("failed")
		require.NotContains(t, left, "")
		require.False(t, f.exists("resqued:passed:failed"))
		seen := map[string]int{}
		last := -1
		for _, record := range left {
			seen[record]++
			if i, err := strconv.Atoi(record); err == nil {
				require.Greater(t, i, last, "the order stays")
				last = i
				require.False(t, strings.HasSuffix(record, "7"), record)
			}
		}
		for i := range n {
			require.Equal(t, 1, seen[fmt.Sprintf("new %d", i+1)])
		}
		require.GreaterOrEqual(t, len(out), 60)
		require.Len(t, left, 600+n-n-doneOf(out), "what Ruby removed, and what was")
	})
	t.Run("a queue that is none keeps its record", func(t *testing.T) {
		f := setup(t)
		f.fail("1", "2", "3")
		f.redis.Set(t.Context(), f.key("queue:q"), "text", 0)
		require.Equal(t, []toldEdit{{"1", 'x'}, {"2", 'x'}, {"3", 'x'}}, f.edit(all(t, f.Store), false, retryEdit))
		require.Equal(t, []string{"1", "2", "3"}, f.list("failed"))
	})
	t.Run("a list that is none is left alone", func(t *testing.T) {
		f := setup(t)
		f.fail("1", "2", "3")
		targets, whole := all(t, f.Store), f.whole()
		for _, key := range []string{"failed", "resqued:passed:failed"} {
			f.redis.Del(t.Context(), f.key("failed"), f.key("resqued:passed:failed"))
			f.fail("1", "2", "3")
			f.redis.Del(t.Context(), f.key(key))
			f.redis.Set(t.Context(), f.key(key), "text", 0)
			_, err := f.DropFailed(t.Context(), &whole)
			require.ErrorContains(t, err, "move it away")
			if key == "failed" {
				require.Error(t, f.EditFailed(t.Context(), store.FailedWork{List: "failed", Targets: targets, Remove: true, Edit: removeEdit}))
			}
			require.Equal(t, "text", f.redis.Get(t.Context(), f.key(key)).Val())
		}
	})
}

func doneOf(out []toldEdit) (n int) {
	for _, o := range out {
		if o.what == store.FailedDone {
			n++
		}
	}
	return n
}

// A command that is killed while it sifts leaves its records in two places.
func TestALeftSifting(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		left := func(t *testing.T, passed int) *fixture {
			t.Helper()
			f := setup(t, server)
			store.NearEnd(f.Store, 1)
			f.fail(numberedRecords(200)...)
			require.NoError(t, store.LeaveSifting(t.Context(), f.Store, "failed", passed))
			require.Equal(t, numberedRecords(200)[passed:], f.list("failed"))
			f.fail("new")
			return f
		}
		whole := append(numberedRecords(200), "new")
		expire := func(f *fixture) {
			token, _, _ := strings.Cut(f.redis.HGet(t.Context(), f.key("resqued:sifting"), "failed").Val(), " ")
			require.NotEmpty(t, token)
			f.redis.HSet(t.Context(), f.key("resqued:sifting"), "failed", token+" 1")
		}
		t.Run("all records are listed, and found", func(t *testing.T) {
			f := left(t, 70)
			records, total, err := f.FailedList(t.Context(), "failed", 100, 60)
			require.NoError(t, err)
			require.EqualValues(t, 201, total)
			require.Len(t, records, 60)
			for i, r := range records {
				require.Equal(t, whole[100-i], string(r.Raw))
				require.EqualValues(t, 100-i, r.Index)
			}
			sum := sha256.Sum256([]byte("50"))
			found, err := f.FindFailures(t.Context(), []store.FailureRef{{Digest: hex.EncodeToString(sum[:8]), At: 50}})
			require.NoError(t, err)
			require.Equal(t, [][]store.FailureRecord{{{List: "failed", Index: 50, Raw: []byte("50")}}}, found)
		})
		t.Run("nobody disturbs one that lives", func(t *testing.T) {
			f := left(t, 70)
			restored, err := f.RestoreFailed(t.Context())
			require.NoError(t, err)
			require.Empty(t, restored)
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			require.Error(t, f.ScanFailed(ctx, "failed", func(int64, []byte) bool { return true }))
			require.Len(t, f.list("resqued:passed:failed"), 70)
		})
		for _, passed := range []int{1, 70, 200} {
			t.Run(fmt.Sprintf("whoever comes brings %d back", passed), func(t *testing.T) {
				f := left(t, passed)
				expire(f)
				restored, err := f.RestoreFailed(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{"failed"}, restored)
				require.Equal(t, whole, f.list("failed"))
				require.False(t, f.exists("resqued:sifting"))
				require.False(t, f.exists("resqued:passed:failed"))

				f = left(t, passed)
				expire(f)
				third := func(record string) bool { return strings.HasSuffix(record, "3") }
				f.edit(those(t, f.Store, third), true, removeEdit)
				require.Equal(t, slices.DeleteFunc(slices.Clone(whole), third), f.list("failed"))
			})
		}
		t.Run("with an empty list, and without an entry", func(t *testing.T) {
			f := left(t, 200)
			f.redis.LTrim(t.Context(), f.key("failed"), 1, 0)
			f.redis.HDel(t.Context(), f.key("resqued:sifting"), "failed")
			f.edit(&store.FailedTargets{}, true, removeEdit)
			whole := f.whole()
			n, err := f.DropFailed(t.Context(), &whole)
			require.NoError(t, err)
			require.EqualValues(t, 200, n)
			require.False(t, f.exists("resqued:passed:failed"))
		})
		t.Run("one that was thought dead and is not does no harm", func(t *testing.T) {
			f := setup(t, server)
			store.NearEnd(f.Store, 1)
			f.fail(numberedRecords(300)...)
			n := 0
			out := f.edit(those(t, f.Store, func(record string) bool { return strings.HasSuffix(record, "5") }), true, func(record []byte) store.FailedEdit {
				if n++; n == 9 {
					expire(f)
					_, err := f.RestoreFailed(t.Context())
					require.NoError(t, err)
				}
				return removeEdit(record)
			})
			require.Equal(t, 30, doneOf(out))
			require.Equal(t, slices.DeleteFunc(numberedRecords(300), func(record string) bool { return strings.HasSuffix(record, "5") }), f.list("failed"))
		})
		t.Run("a record that Ruby is about to remove does not come back", func(t *testing.T) {
			f := setup(t, server)
			store.NearEnd(f.Store, 1)
			f.fail(numberedRecords(300)...)
			f.edit(those(t, f.Store, func(record string) bool { return strings.HasSuffix(record, "5") }), true, func(record []byte) store.FailedEdit {
				if string(record) == "5" {
					f.redis.LSet(t.Context(), f.key("failed"), 1, "") // and it looks for it when it has passed
				}
				return removeEdit(record)
			})
			require.False(t, f.exists("resqued:passed:failed"))
			require.Equal(t, slices.DeleteFunc(numberedRecords(300), func(record string) bool {
				return strings.HasSuffix(record, "5") || record == "1"
			}), f.list("failed"))
		})
		t.Run("one that gives up leaves one list", func(t *testing.T) {
			f := setup(t, server)
			store.NearEnd(f.Store, 1)
			f.fail(numberedRecords(300)...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			n := 0
			err := f.EditFailed(ctx, store.FailedWork{
				List: "failed", Targets: all(t, f.Store), Remove: true, Done: func([]byte, store.FailedEdit, store.FailedOutcome) {},
				Edit: func(record []byte) store.FailedEdit {
					if n++; n == 100 {
						stop()
					}
					return removeEdit(record)
				},
			})
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, f.exists("resqued:passed:failed"))
			require.False(t, f.exists("resqued:sifting"))
			list := f.list("failed")
			require.Greater(t, len(list), 100)
			require.Equal(t, numberedRecords(300)[300-len(list):], list)
		})
	})
}

// To take a record out costs the way through the list, and more where its records are larger.
func TestLargeFailuresAreNearAnEndSooner(t *testing.T) {
	t.Parallel()
	for size, most := range map[int64]int64{0: 220_000, 300: 100_000, 1000: 45_000, 3000: 17_000, 1 << 20: 50} {
		require.InEpsilon(t, most, store.NearEndOf(size), 0.05, "%d bytes", size)
	}
}

func TestFindFailures(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	f.fail(numberedRecords(1000)...)
	f.fail("twin", "x", "twin")
	require.NoError(t, f.redis.SAdd(t.Context(), f.key("failed_queues"), "mail_failed", "empty_failed", "queue:q_failed", "resqued:inflight_failed", "queues").Err())
	require.NoError(t, f.redis.RPush(t.Context(), f.key("mail_failed"), "a", "b").Err())
	lists, err := f.FailureLists(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"failed", "empty_failed", "mail_failed"}, lists)
	digest := func(record string) string {
		sum := sha256.Sum256([]byte(record))
		return hex.EncodeToString(sum[:])
	}
	find := func(digest string, at int64) []store.FailureRecord {
		found, err := f.FindFailures(t.Context(), []store.FailureRef{{Digest: digest, At: at}})
		require.NoError(t, err)
		return found[0]
	}
	one := func(list string, index int64, raw string) []store.FailureRecord {
		return []store.FailureRecord{{List: list, Index: index, Raw: []byte(raw)}}
	}
	require.Equal(t, one("failed", 500, "500"), find(digest("500")[:12], 500))
	require.Equal(t, one("failed", 500, "500"), find(strings.ToUpper(digest("500")), 600), "others were removed")
	require.Equal(t, one("failed", 500, "500"), find(digest("500")[:12], 900), "very many were removed")
	require.Equal(t, one("failed", 500, "500"), find(digest("500")[:12], 1_000_000))
	require.Equal(t, one("failed", 500, "500"), find(digest("500")[:12], -1), "an id as they were before")
	require.Equal(t, one("mail_failed", 1, "b"), find(digest("b")[:12], 1))
	require.Equal(t, one("mail_failed", 0, "a"), find(digest("a")[:12], -1))
	require.Equal(t, one("failed", 1002, "twin"), find(digest("twin")[:12], 1002))
	require.Equal(t, one("failed", 1000, "twin"), find(digest("twin")[:12], 1000))
	require.Len(t, find(digest("twin")[:12], -1), 1)
	require.Empty(t, find("ffffffffffffffff", 3))
	require.Empty(t, find("", -1))
	require.Greater(t, len(find("0", -1)), 10, "the beginning of many")
}

// TestFailuresAtSize edits very many failures. RESQUED_TEST_FULL=1 makes them a million.
func TestFailuresAtSize(t *testing.T) {
	t.Parallel()
	n, near := 100_000, int64(1000)
	if os.Getenv("RESQUED_TEST_FULL") != "" {
		n, near = 1_000_000, 0
	}
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	store.NearEnd(f.Store, near)
	record := func(i int, class string) string {
		return fmt.Sprintf(`{"failed_at":"2026/11/20 09:56:20 UTC","payload":{"class":%q,"args":[%d]},"exception":"Timeout::Error",`+
			`"error":"execution expired after 30 s","backtrace":["app/jobs/mail.rb:12:in 'perform'","app/jobs/base.rb:3:in 'call'"],`+
			`"worker":"web-1:4242:mail","queue":"mail"}`, class, i)
	}
	for from := range n / 1000 {
		pipe := f.redis.Pipeline()
		for i := range 1000 {
			class := "Mail"
			if i%50 == 0 {
				class = "Rare"
			}
			pipe.RPush(t.Context(), f.key("failed"), record(from*1000+i, class))
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
	}

	// measured counts what the scripts do to the server, and logs how long they take.
	measured := func(what string, do func()) {
		t.Helper()
		require.NoError(t, f.redis.ConfigResetStat(t.Context()).Err())
		began := time.Now()
		w := walked(t, server, f.redis, n, do)
		took := time.Since(began)
		scripts, _ := commandStat(t, f.redis, "evalsha")
		half, most := percentiles(t, f.redis)
		t.Logf("%s of %d: %s, %d scripts, half of them in %d µs, 99 %% in %d µs; %d commands, %d elements, %d on the way", what, n,
			took.Round(time.Millisecond), scripts, half, most, w.commands, w.elements, w.way)
		// These fit into a few milliseconds. The way to a record is one step for each 8 KiB.
		require.LessOrEqual(t, w.commands, 300*scripts, what)
		require.LessOrEqual(t, w.elements, 10_000*scripts, what)
		require.LessOrEqual(t, w.way, 6_000_000*scripts, what)
	}
	rare := func(record string) bool { return strings.Contains(record, `"Rare"`) }
	measured("retry of one in the middle", func() {
		middle := record(n/2+1, "Mail")
		sum := sha256.Sum256([]byte(middle))
		found, err := f.FindFailures(t.Context(), []store.FailureRef{{Digest: hex.EncodeToString(sum[:6]), At: int64(n/2 + 1)}})
		require.NoError(t, err)
		require.Len(t, found[0], 1)
		var targets store.FailedTargets
		targets.Add(found[0][0].Index, found[0][0].Raw)
		require.Equal(t, 1, doneOf(f.edit(&targets, false, retryEdit)))
	})
	measured("scan for an old id", func() {
		sum := sha256.Sum256([]byte(record(n/2+2, "Mail")))
		found, err := f.FindFailures(t.Context(), []store.FailureRef{{Digest: hex.EncodeToString(sum[:6]), At: -1}})
		require.NoError(t, err)
		require.Len(t, found[0], 1)
	})
	measured("rm of 2 %", func() {
		require.Equal(t, n/50, doneOf(f.edit(those(t, f.Store, rare), true, removeEdit)))
	})
	require.EqualValues(t, n-n/50, f.redis.LLen(t.Context(), f.key("failed")).Val())
	measured("retry of 2 %", func() {
		require.Equal(t, n/50, doneOf(f.edit(those(t, f.Store, func(record string) bool {
			return strings.Contains(record, "21]}") || strings.Contains(record, "71]}")
		}), false, retryEdit)))
	})
	measured("drop", func() {
		whole := f.whole()
		_, err := f.DropFailed(t.Context(), &whole)
		require.NoError(t, err)
	})
}

// walkedWork counts what scripts do: their commands, the elements of lists that these look at, and
// those on the way from the nearer end of the list to one that is replaced.
type walkedWork struct{ commands, elements, way int }

// walked counts what scripts do while do runs. They replace elements of a list of n only, and
// may not go through it in one command.
func walked(t *testing.T, server *redistest.Server, client *redis.Client, n int, do func()) (w walkedWork) {
	t.Helper()
	monitor, err := net.Dial("unix", server.Socket)
	require.NoError(t, err)
	defer func() { _ = monitor.Close() }()
	_, err = monitor.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewReader(monitor)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", line)
	bad := make(chan string, 1)
	go func() {
		defer close(bad)
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, `"the end of it"`) {
				return
			}
			_, command, ok := strings.Cut(line, " lua] ")
			if !ok {
				continue
			}
			w.commands++
			words := strings.SplitN(strings.TrimSpace(command), " ", 5)
			number := func(word int) int {
				i, _ := strconv.Atoi(strings.Trim(words[word], `"`))
				return i
			}
			switch strings.ToUpper(words[0]) {
			case `"LRANGE"`:
				if number(2) < 0 != (number(3) < 0) {
					bad <- line
					return
				}
				w.elements += number(3) - number(2) + 1
			case `"LPOS"`:
				at := strings.LastIndex(command, `"MAXLEN" "`)
				if at < 0 {
					bad <- line
					return
				}
				most := 0
				_, _ = fmt.Sscanf(command[at:], `"MAXLEN" "%d"`, &most)
				w.elements += most
			case `"LSET"`:
				w.way += min(number(2), n-number(2))
			case `"LREM"`, `"LINSERT"`:
				bad <- line
				return
			}
		}
	}()
	do()
	require.NoError(t, client.Echo(t.Context(), "the end of it").Err())
	require.Empty(t, <-bad, "goes through a list")
	return w
}

// percentiles returns in how many µs one half and 99 % of the scripts have run.
func percentiles(t *testing.T, client *redis.Client) (half, most int) {
	t.Helper()
	info, err := client.Info(t.Context(), "latencystats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "latency_percentiles_usec_evalsha:"); ok {
			var p50, p99 float64
			_, err := fmt.Sscanf(rest, "p50=%f,p99=%f", &p50, &p99)
			require.NoError(t, err)
			half, most = int(p50), int(p99)
		}
	}
	return half, most
}

// commandStat returns how often a command has run, and for how long (µs).
func commandStat(t *testing.T, client *redis.Client, command string) (calls, usec int) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
			_, err := fmt.Sscanf(rest, "calls=%d,usec=%d", &calls, &usec)
			require.NoError(t, err)
		}
	}
	return calls, usec
}
