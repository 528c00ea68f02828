package history_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const processed, failed, unrun = history.Processed, history.Failed, history.Unrun

// at is the beginning of an hour in the middle of a day.
var at = time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC)

// redis does what Redis does with the commands of this package.
type redis map[string][]byte

func (r redis) do(t *testing.T, writes ...history.Write) {
	t.Helper()
	for _, w := range writes {
		require.Equal(t, []any{"OVERFLOW", "SAT"}, w.Args[:2])
		for op := range slices.Chunk(w.Args[2:], 4) {
			bits, err := strconv.Atoi(op[1].(string)[1:])
			require.NoError(t, err)
			offset, whole := op[2].(int)
			if !whole {
				n, err := strconv.Atoi(op[2].(string)[1:])
				require.NoError(t, err)
				offset = n * bits
			}
			n, _ := op[3].(int64)
			if grow := (offset+bits+7)/8 - len(r[w.Key]); grow > 0 {
				require.Contains(t, []int{0, 416}, len(r[w.Key]), "the string has its size from the beginning, but for interrupted jobs")
				r[w.Key] = append(r[w.Key], make([]byte, grow)...)
			}
			value, most := uint64(0), uint64(1)<<bits-1
			for i := range bits {
				value = value<<1 | uint64(r[w.Key][(offset+i)/8]>>(7-(offset+i)%8)&1)
			}
			switch op[0] {
			case "SET":
				value = uint64(n)
			case "INCRBY":
				value = min(value+uint64(n), most)
				if value < uint64(n) {
					value = most
				}
			}
			for i := range bits {
				bit := byte(value>>(bits-1-i)) & 1
				place := &r[w.Key][(offset+i)/8]
				*place = *place&^(1<<(7-(offset+i)%8)) | bit<<(7-(offset+i)%8)
			}
		}
	}
}

func (r redis) get(keys []string) (out [][]byte) {
	for _, key := range keys {
		out = append(out, r[key])
	}
	return out
}

func (r redis) points(name history.Name, from, to time.Time, step history.Step) []history.Point {
	q := history.Query{Name: name, From: from, To: to, Step: step}
	return q.Points(r.get(q.Keys()))
}

func mail() history.Name { return history.Name{Kind: history.Class, Name: "Mail"} }

func TestJobsAreCountedUntilTheyAreRead(t *testing.T) {
	t.Parallel()
	var worker history.Sums
	worker.Add("Mail", "out", processed, 5*time.Millisecond, 40*time.Millisecond)
	worker.Add("Mail", "out", processed|failed, 700*time.Millisecond, history.Unknown)
	worker.Add("Mail", "in", unrun, history.Unknown, history.Unknown)
	worker.Add("Report", "out", processed, 3*time.Hour, 30*time.Hour)
	host := history.NewCollector("vm")
	require.NoError(t, host.Add(at.Add(7*time.Minute), worker.Take()))
	require.Nil(t, worker.Take())
	host.Count(at.Add(8*time.Minute), "Mail", "out", processed|failed)

	db := redis{}
	minutes := host.Take()
	require.Empty(t, host.Take())
	require.Len(t, minutes, 2)
	for _, m := range minutes {
		for name, sum := range m.Sums {
			for _, w := range history.Writes(name, m.Minute, sum) {
				require.Equal(t, strings.HasSuffix(w.Key, ":total"), w.TTL == 0)
				db.do(t, w)
			}
		}
	}

	t.Run("by minute", func(t *testing.T) {
		t.Parallel()
		points := db.points(mail(), at, at.Add(time.Hour), history.Minute)
		require.Len(t, points, 60)
		p := points[7]
		require.Equal(t, at.Add(7*time.Minute), p.At)
		require.Equal(t, history.Sum{Runs: 2, Failed: 1, Unrun: 1, Micros: 710_000}, p.Sum, "705 ms, in 10 ms")
		require.Equal(t, history.Sum{Runs: 1, Failed: 1}, points[8].Sum)
		require.True(t, points[9].Empty())
	})
	t.Run("by five minutes", func(t *testing.T) {
		t.Parallel()
		points := db.points(mail(), at, at.Add(time.Hour), history.FiveMinutes)
		require.Len(t, points, 12)
		p := points[1]
		require.EqualValues(t, 3, p.Runs)
		require.EqualValues(t, 2, p.Failed)
		require.EqualValues(t, 2, p.Run.Count())
		require.EqualValues(t, 1, p.Wait.Count())
	})
	t.Run("by hour", func(t *testing.T) {
		t.Parallel()
		points := db.points(history.AllJobs(), at.Add(-20*time.Hour), at.Add(time.Hour), history.Hour)
		require.Len(t, points, 21)
		p := points[20]
		require.EqualValues(t, 4, p.Runs)
		require.EqualValues(t, 2, p.Failed)
		require.EqualValues(t, 1, p.Unrun)
		require.EqualValues(t, 3*3600*1e6+705_000, p.Micros)
		require.EqualValues(t, 1, p.Run[history.RunBuckets-1])
		require.EqualValues(t, 1, p.Wait[history.WaitBuckets-1])
	})
	t.Run("all in all", func(t *testing.T) {
		t.Parallel()
		for name, runs := range map[history.Name]uint64{
			history.AllJobs(): 4, mail(): 3, {Kind: history.Class, Name: "Report"}: 1, {Kind: history.Queue, Name: "out"}: 4,
			{Kind: history.Queue, Name: "in"}: 0, {Kind: history.Host, Name: "vm"}: 4,
		} {
			require.Contains(t, db, history.TotalKey(name))
			require.Equal(t, runs, history.ReadTotal(db[history.TotalKey(name)]).Runs, name)
		}
	})
	t.Run("strings have the sizes of the design", func(t *testing.T) {
		t.Parallel()
		for key, raw := range db {
			last := key[strings.LastIndexByte(key, ':')+1:]
			require.Len(t, raw, map[byte]int{'h': 3264, 'd': 6720, 't': 416}[last[0]], key)
		}
	})
}

// TestSumsSurviveTheWay has random jobs counted, sent, added up, written and read, and compares
// the end with the beginning.
func TestSumsSurviveTheWay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := map[history.Name]*history.Sum{}
		hosts, db := []*history.Collector{history.NewCollector("a"), history.NewCollector("b")}, redis{}
		note := func(name history.Name, out history.Outcome, ran, waited time.Duration) {
			if want[name] == nil {
				want[name] = &history.Sum{}
			}
			want[name].Add(out, ran, waited)
		}
		flush := func(host *history.Collector) {
			for _, m := range host.Take() {
				if random.IntN(4) == 0 {
					host.PutBack(m)
					continue
				}
				for name, sum := range m.Sums {
					db.do(t, history.Writes(name, m.Minute, sum)...)
				}
			}
		}
		for range 20 {
			var worker history.Sums
			which := random.IntN(2)
			for range random.IntN(200) {
				class, queue := fmt.Sprint("C", random.IntN(30)), fmt.Sprint("q", random.IntN(30))
				out := []history.Outcome{processed, processed | failed, unrun, processed | unrun, processed | history.Interrupted}[random.IntN(5)]
				ran, waited := time.Duration(math.Exp(random.Float64()*24))*time.Millisecond/1000, history.Unknown
				if random.IntN(2) == 0 {
					ran, waited = history.Unknown, time.Duration(math.Exp(random.Float64()*26))*time.Microsecond
				}
				if ran >= 0 {
					ran = ran.Truncate(time.Millisecond)
				}
				worker.Add(class, queue, out, ran, waited)
				for _, name := range []history.Name{
					{Kind: history.Class, Name: class}, {Kind: history.Queue, Name: queue}, history.AllJobs(), {Kind: history.Host, Name: []string{"a", "b"}[which]},
				} {
					note(name, out, ran, waited)
				}
			}
			packet := worker.Take()
			if random.IntN(3) == 0 {
				require.NoError(t, worker.PutBack(packet))
				packet = worker.Take()
			}
			require.NoError(t, hosts[which].Add(at.Add(time.Duration(random.IntN(10))*time.Minute), packet))
			flush(hosts[which])
		}
		for _, host := range hosts {
			for _, m := range host.Take() {
				for name, sum := range m.Sums {
					db.do(t, history.Writes(name, m.Minute, sum)...)
				}
			}
		}
		for name, sum := range want {
			require.Equal(t, *sum, history.ReadTotal(db[history.TotalKey(name)]), name)
			for _, step := range []history.Step{history.Minute, history.FiveMinutes, history.Hour} {
				var all history.Sum
				for _, p := range db.points(name, at, at.Add(time.Hour), step) {
					all.Merge(&p.Sum)
				}
				require.Equal(t, []uint64{sum.Runs, sum.Failed, sum.Unrun}, []uint64{all.Runs, all.Failed, all.Unrun}, name)
				if step != history.Minute {
					require.Equal(t, sum.Run, all.Run)
					require.Equal(t, sum.Wait, all.Wait)
				}
			}
		}
	}
}

func TestNumbersSaturate(t *testing.T) {
	t.Parallel()
	db := redis{}
	sum := history.Sum{Runs: math.MaxUint64, Failed: 1 << 40, Micros: math.MaxUint64}
	sum.Run[3] = 1 << 60
	for range 3 {
		db.do(t, history.Writes(mail(), at.Unix()/60, &sum)...)
	}
	p := db.points(mail(), at, at.Add(time.Minute), history.Minute)[0]
	require.EqualValues(t, math.MaxUint32, p.Runs)
	require.EqualValues(t, math.MaxUint32, p.Failed)
	require.EqualValues(t, 1<<24-1, db.points(mail(), at, at.Add(time.Minute), history.FiveMinutes)[0].Run[3])
	total := history.ReadTotal(db[history.TotalKey(mail())])
	require.EqualValues(t, math.MaxInt64, total.Runs)
	require.EqualValues(t, 1<<48-1, total.Run[3])
	sum.Merge(&sum)
	require.EqualValues(t, uint64(math.MaxUint64), sum.Runs)
}

func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	t.Run("too many count as others, and packets stay small", func(t *testing.T) {
		t.Parallel()
		var worker history.Sums
		for i := range 2000 {
			for n := range 10 {
				worker.Add(fmt.Sprint("Class", i), fmt.Sprint("queue", i), processed, time.Millisecond<<n, 0)
			}
		}
		host := history.NewCollector("vm")
		packets := 0
		for packet := worker.Take(); packet != nil; packet = worker.Take() {
			require.LessOrEqual(t, len(packet), history.MaxPacket)
			require.NoError(t, host.Add(at, packet))
			packets++
		}
		require.Greater(t, packets, 1)
		sums := host.Take()[0].Sums
		require.LessOrEqual(t, len(sums), 2*history.MaxNames+4)
		var runs uint64
		for name, sum := range sums {
			if name.Kind == history.Class {
				runs += sum.Runs
			}
		}
		require.EqualValues(t, 20000, runs)
		require.EqualValues(t, 16000, sums[history.Name{Kind: history.Class, Name: history.Other}].Runs)
	})
	t.Run("one that is too long does, and an empty one", func(t *testing.T) {
		t.Parallel()
		var worker history.Sums
		worker.Add(strings.Repeat("x", 201), "", processed, 0, 0)
		host := history.NewCollector(strings.Repeat("h", 300))
		require.NoError(t, host.Add(at, worker.Take()))
		for name := range host.Take()[0].Sums {
			require.Contains(t, []string{history.Other, history.Everything}, name.Name)
		}
	})
	t.Run("those that are used no more make room", func(t *testing.T) {
		t.Parallel()
		var worker history.Sums
		for i := range 400 {
			worker.Add(fmt.Sprint("Class", i), "q", processed, 0, 0)
		}
		for worker.Take() != nil {
		}
		for range 40 {
			worker.Take()
		}
		worker.Add("New", "q", processed, 0, 0)
		require.Contains(t, string(worker.Take()), "New")
	})
	t.Run("a collector that nobody empties forgets the oldest", func(t *testing.T) {
		t.Parallel()
		host := history.NewCollector("vm")
		for i := range 100 {
			host.Count(at.Add(time.Duration(i)*time.Minute), "A", "q", processed)
		}
		minutes := host.Take()
		require.Len(t, minutes, 15)
		require.Equal(t, at.Unix()/60+99, minutes[14].Minute)
	})
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	t.Run("nothing has none", func(t *testing.T) {
		t.Parallel()
		_, ok := (&history.RunTimes{}).Percentile(0.5)
		require.False(t, ok)
		_, ok = (&history.RunTimes{1}).Percentile(math.NaN())
		require.False(t, ok)
	})
	t.Run("those of lognormal times are near", func(t *testing.T) {
		t.Parallel()
		random := rand.New(rand.NewPCG(1, 2))
		for _, median := range []float64{3, 20, 400, 9000} {
			for _, sigma := range []float64{0.3, 0.8, 1.5} {
				var sum history.Sum
				var times []float64
				for range 20000 {
					ms := median * math.Exp(sigma*random.NormFloat64())
					times = append(times, ms)
					sum.Add(processed, time.Duration(ms*float64(time.Millisecond)), history.Unknown)
				}
				slices.Sort(times)
				for share, most := range map[float64]float64{0.5: 0.12, 0.95: 0.2, 0.99: 0.25} {
					got, ok := sum.Run.Percentile(share)
					require.True(t, ok)
					want := times[int(share*float64(len(times)))]
					require.InDelta(t, 1, float64(got)/float64(time.Millisecond)/want, most, "median %v sigma %v share %v", median, sigma, share)
				}
			}
		}
	})
	t.Run("they grow with their share and stay within the buckets", func(t *testing.T) {
		t.Parallel()
		random := rand.New(rand.NewPCG(3, 4))
		for range 200 {
			var h history.WaitTimes
			for i := range h {
				h[i] = random.Uint64N(3)
			}
			if h.Count() == 0 {
				continue
			}
			last := time.Duration(0)
			for share := 0.0; share <= 1; share += 0.01 {
				got, ok := h.Percentile(share)
				require.True(t, ok)
				require.GreaterOrEqual(t, got, last)
				last = got
			}
			require.LessOrEqual(t, last, history.WaitLimit(history.WaitBuckets-2))
		}
	})
	t.Run("each time is below the limit of its bucket, and not below that of the one before", func(t *testing.T) {
		t.Parallel()
		for ms := range int64(20_000) {
			d := time.Duration(ms*ms) * time.Millisecond
			var sum history.Sum
			sum.Add(processed, d, d)
			i, j := slices.Index(sum.Run[:], 1), slices.Index(sum.Wait[:], 1)
			if i < 0 || j < 0 ||
				i < history.RunBuckets-1 && d >= history.RunLimit(i) || i > 0 && d < history.RunLimit(i-1) ||
				j < history.WaitBuckets-1 && d >= history.WaitLimit(j) || j > 0 && d < history.WaitLimit(j-1) {
				t.Fatalf("%v is in the buckets %d and %d", d, i, j)
			}
		}
	})
}

func TestLevels(t *testing.T) {
	t.Parallel()
	db := redis{}
	level := history.Level{Jobs: 12, Oldest: 90 * time.Second, Locked: 3}
	db.do(t, history.WriteLevel("out", at.Unix()/60+5, level))
	db.do(t, history.WriteLevel("out", at.Unix()/60+6, history.Level{Jobs: math.MaxUint64, Oldest: history.Unknown, Locked: math.MaxUint64}))
	db.do(t, history.WriteLevel("out", at.Unix()/60+7, history.Level{Jobs: 1, Oldest: math.MaxInt64}))
	q := history.Levels{Queue: "out", From: at, To: at.Add(10 * time.Minute)}
	levels := q.Levels(db.get(q.Keys()))
	require.Len(t, levels, 10)
	level.At = at.Add(5 * time.Minute)
	require.Equal(t, level, levels[5])
	require.Equal(t, history.Level{At: at.Add(6 * time.Minute), Jobs: math.MaxUint32, Oldest: history.Unknown, Locked: 1<<24 - 1}, levels[6])
	require.Equal(t, (1<<24-2)*time.Second, levels[7].Oldest)
	require.Equal(t, history.Level{At: at.Add(8 * time.Minute)}, levels[8])
	require.Len(t, db["resqued:hist:q:out:g"+strconv.FormatInt(at.Unix()/3600, 10)], 600)
}

func TestQueriesAreBounded(t *testing.T) {
	t.Parallel()
	for step, most := range map[history.Step]int{history.Minute: 26 * 60, history.FiveMinutes: 26 * 12, history.Hour: 32 * 24, 0: 32 * 24, -5: 32 * 24} {
		q := history.Query{Name: mail(), From: time.Unix(-1<<40, 0), To: at, Step: step}
		require.LessOrEqual(t, len(q.Keys()), 34)
		points := q.Points(nil)
		require.Len(t, points, most)
		require.True(t, points[most-1].At.Before(at))
		q.From, q.To = q.To, q.From
		require.Empty(t, q.Points(nil))
		require.Empty(t, q.Keys())
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []history.Name{mail(), history.AllJobs(), {Kind: history.Queue, Name: "a:b:c\x00\xff"}} {
		got, err := history.ParseName(name.String())
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
	for _, text := range []string{"", "c", "c:", "x:Mail", "cc:Mail", "c:" + strings.Repeat("x", 201)} {
		_, err := history.ParseName(text)
		require.Error(t, err, text)
	}
}

// TestCountingIsCheap: each job pays for it.
func TestCountingIsCheap(t *testing.T) {
	var sums history.Sums
	sums.Add("Mail", "out", processed, time.Millisecond, time.Second)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		sums.Add("Mail", "out", processed, 12*time.Millisecond, time.Second)
	}))
}

func BenchmarkAdd(b *testing.B) {
	b.Run("one class", func(b *testing.B) { benchmarkAdd(b, 1, 1) })
	b.Run("32 classes in turn", func(b *testing.B) { benchmarkAdd(b, 32, 8) })
}

func benchmarkAdd(b *testing.B, c, q int) {
	var sums history.Sums
	classes, queues := make([]string, c), make([]string, q)
	for i := range classes {
		classes[i] = fmt.Sprintf("Application::Job%d", i)
	}
	for i := range queues {
		queues[i] = fmt.Sprintf("queue-%d", i)
	}
	b.ReportAllocs()
	n, before := 0, cpu()
	for b.Loop() {
		n++
		sums.Add(classes[n&(c-1)], queues[n&(q-1)], processed, time.Duration(n%100_000)*time.Microsecond, time.Duration(n%7000)*time.Millisecond)
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op") // others may use the machine
}

// cpu is the time that this process has used.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FuzzPacket: what a worker process sends is bytes of a process that runs foreign code.
func FuzzPacket(f *testing.F) {
	var sums history.Sums
	sums.Add("Mail", "out", processed|failed, time.Second, time.Minute)
	packet := sums.Take()
	f.Add(packet)
	f.Add(packet[:len(packet)-1])
	f.Add([]byte{1})
	f.Add(append([]byte{2, 'c'}, binary.AppendUvarint(nil, math.MaxUint64)...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		host, again := history.NewCollector("vm"), &history.Sums{}
		first, second := host.Add(at, packet), again.PutBack(packet)
		require.Equal(t, first == nil, second == nil)
		for _, m := range host.Take() {
			for name, sum := range m.Sums {
				_, err := history.ParseName(name.String())
				require.NoError(t, err)
				redis{}.do(t, history.Writes(name, m.Minute, sum)...)
			}
		}
		for p := again.Take(); p != nil; p = again.Take() {
			require.NoError(t, host.Add(at, p))
		}
	})
}

// FuzzStrings: anybody may write to Redis.
func FuzzStrings(f *testing.F) {
	f.Add([]byte("x"), int64(1_800_000_000), int64(1_800_003_600))
	f.Add(make([]byte, 6720), int64(-5), int64(1<<62))
	f.Add([]byte(nil), int64(math.MinInt64), int64(1<<62))
	f.Add([]byte(nil), int64(math.MinInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, raw []byte, from, to int64) {
		start, end := time.Unix(from, 0), time.Unix(to, 0)
		for _, step := range []history.Step{history.Minute, history.FiveMinutes, history.Hour} {
			q := history.Query{Name: mail(), From: start, To: end, Step: step}
			strings := make([][]byte, len(q.Keys()))
			for i := range strings {
				strings[i] = raw
			}
			for _, p := range q.Points(strings) {
				p.Run.Percentile(0.95)
				p.Wait.Percentile(0.95)
			}
		}
		q := history.Levels{Queue: "q", From: start, To: end}
		q.Levels([][]byte{raw, nil, raw})
		total := history.ReadTotal(raw)
		total.Run.Percentile(0.5)
	})
}
