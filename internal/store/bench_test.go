package store_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// BenchmarkExchange reports what a locked job costs: the server's time in the
// script (us-redis/job) beside the time of the whole call. Jobs end and begin in
// batches of different sizes, as they do under different load.
func BenchmarkExchange(b *testing.B) {
	server := redistest.Start(b, redistest.Options{})
	for _, batch := range []int{1, 8, 50} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s, err := store.Open(store.Options{URL: server.URL(), Namespace: fmt.Sprintf("b%d", batch)})
			require.NoError(b, err)
			defer func() { _ = s.Close() }()
			client := server.Client(b)
			require.NoError(b, s.Register(b.Context(), store.Registration{Proc: "p1", Workers: []string{"h/0.0:1:q"}}))
			queues := []store.Queue{{Name: "q", Locked: true}}
			number, jobs := 0, []store.Reserved(nil)
			var script, calls float64
			for b.Loop() {
				if number%1000 < batch {
					b.StopTimer()
					payloads := make([][]byte, 1000+2*batch)
					for i := range payloads {
						payloads[i] = fmt.Appendf(nil, `{"class":"Mail","args":[%d,"subject"]}`, number+i)
					}
					_, err := s.Push(b.Context(), "q", payloads...)
					require.NoError(b, err)
					b.StartTimer()
				}
				req := store.ExchangeRequest{Proc: "p1", Master: "m", Queues: queues}
				for i := range jobs {
					req.Completions = append(req.Completions, store.Completion{Job: &jobs[i], Kind: store.Done})
				}
				for range batch {
					number++
					req.Wants = append(req.Wants, store.Want{Token: strconv.Itoa(number), Worker: "h/0.0:1:q"})
				}
				reply, err := s.Exchange(b.Context(), req)
				require.NoError(b, err)
				require.Len(b, reply.Jobs, batch)
				jobs = reply.Jobs
			}
			b.StopTimer()
			stats := client.Info(b.Context(), "commandstats").Val()
			found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`).FindStringSubmatch(stats)
			require.NotNil(b, found)
			calls, _ = strconv.ParseFloat(found[1], 64)
			script, _ = strconv.ParseFloat(found[2], 64)
			require.NoError(b, client.ConfigResetStat(b.Context()).Err())
			b.ReportMetric(script/calls/float64(batch), "us-redis/job")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(number), "us/job")
		})
	}
}
