package system_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// statsdServer sums the counters that it receives.
type statsdServer struct {
	port   int
	mu     sync.Mutex
	counts map[string]int
}

func startStatsd(t *testing.T) *statsdServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &statsdServer{port: conn.LocalAddr().(*net.UDPAddr).Port, counts: map[string]int{}}
	var reader sync.WaitGroup
	reader.Go(func() {
		packet := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			s.mu.Lock()
			for line := range strings.FieldsSeq(string(packet[:n])) {
				name, rest, _ := strings.Cut(line, ":")
				value, kind, _ := strings.Cut(rest, "|")
				n, err := strconv.Atoi(value)
				if kind != "c" {
					n, err = 1, nil
				}
				if err == nil {
					s.counts[name] += n
				}
			}
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		reader.Wait()
	})
	return s
}

func (s *statsdServer) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[name]
}

// TestStatsdAndRedisCountTheSame compares statsd's counters with those in Redis, including jobs
// whose process died and jobs that found their class lock held.
func TestStatsdAndRedisCountTheSame(t *testing.T) {
	t.Parallel()
	stats := startStatsd(t)
	d := harness.Start(t, harness.Options{
		App: true, Threads: 3, Config: "handlers:\n  Locked: {command: [sleep, '1'], lock: {class_wide: true}}\n",
		Env: []string{"RESQUED_MAX_DEATHS=1", "STATSD_HOST=127.0.0.1", fmt.Sprintf("STATSD_PORT=%d", stats.port), "STATSD_KEY=k", "RESQUE_TERM_TIMEOUT=1"},
	})
	d.Push("mail", "Count", 1, 2, 3)
	d.Push("mail", "Fail", 4)
	d.Push("mail", "Hopeless", 5)
	d.Push("mail", "NoSuchClass", 6)
	d.Push("mail", "Locked", 7, 8)
	d.AwaitProcessed(3+1+3+1+2, patience)
	d.Push("mail", "Stubborn", 9)
	d.AwaitNoted("started", 1)
	d.Signal(usr1) // it does not listen: its process has to go
	d.AwaitProcessed(11, patience)
	d.Push("mail", "Crash", 10)
	d.AwaitProcessed(12, patience)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	proctest.Await(t, patience, func() bool { return stats.count("k.processed") >= 12 }, "what was counted")
	require.Equal(t, 12, stats.count("k.processed"))
	require.Equal(t, 1+3+1+2, stats.count("k.failed"))
	require.Equal(t, "7", d.Client.Get(t.Context(), d.Key("stat:failed")).Val())
	for class, n := range map[string]int{"Count": 3, "Fail": 1, "Hopeless": 3, "unknown": 1, "Locked": 2, "Stubborn": 1, "Crash": 1} {
		require.Equal(t, n, stats.count("k."+class), class)
	}
	require.Equal(t, 2, stats.count("k.retried"))
	require.Equal(t, []uint64{12, 7, 1}, runsOf(t, d, "t:all"), "what the killed process had counted it had sent before")
	require.Equal(t, []uint64{1, 1, 0}, runsOf(t, d, "c:Crash"))
	require.Equal(t, 1, stats.count("k.dropped"), "the class lock was held")
	require.Equal(t, 1, stats.count("k.duration.Locked"), "only what ran has a duration")
	require.Zero(t, stats.count("k.duration.Stubborn"))
}

// A master counts the unique queues that it repairs and what it drops, including queues that it
// does not work. Its log names the classes, without the arguments.
func TestStatsdCountsRepairs(t *testing.T) {
	t.Parallel()
	stats := startStatsd(t)
	d := harness.Start(t, harness.Options{
		App: true, Queues: "mail", Config: "unique_queues: [unworked]\n",
		Env: []string{"STATSD_HOST=127.0.0.1", fmt.Sprintf("STATSD_PORT=%d", stats.port), "STATSD_KEY=k"},
	})
	hush := `{"class":"Count","args":["hush"]}`
	d.PushRaw("unworked", hush, hush, `{"class":"Count","args":[2]}`) // as a program that does not know the set
	proctest.Await(t, patience, func() bool { return stats.count("k.duplicate") > 0 }, "a repair")
	require.EqualValues(t, 2, d.Client.LLen(t.Context(), d.Key("queue:unworked")).Val())
	require.EqualValues(t, 2, d.Client.SCard(t.Context(), d.Key("queue:unworked:uniqueue")).Val())
	require.Positive(t, stats.count("k.unique_healed"))
	require.Contains(t, d.Log(), `"classes":["Count"]`)
	require.NotContains(t, d.Log(), "hush")
}
