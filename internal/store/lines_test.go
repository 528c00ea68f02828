package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

// lined are queues whose locked jobs wait in lines.
func lined(names ...string) []store.Queue {
	queues := locked(names...)
	for i := range queues {
		queues[i].Lined = true
	}
	return queues
}

// turn ends some jobs and takes up to n from lined queues.
func (f *fixture) turn(n int, ended []store.Reserved, queues ...string) []store.Reserved {
	f.t.Helper()
	req := store.ExchangeRequest{Wants: f.wants(n), Queues: lined(queues...)}
	for _, j := range ended {
		req.Completions = append(req.Completions, done(j))
	}
	return f.exchange(req).Jobs
}

func TestLinesKeepTheOrder(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		var want []string
		for i := range 200 {
			f.push("q", fmt.Sprintf(`{"class":"A","args":[1],"n":%d}`, i))
			want = append(want, fmt.Sprintf(`{"class":"A","args":[1],"n":%d}`, i))
		}
		f.push("q", job("B", "[1]"))
		var got []string
		var held []store.Reserved
		others := 0
		for range 500 {
			jobs := f.turn(3, held, "q")
			held = nil
			for _, j := range jobs {
				if string(j.Payload) == job("B", "[1]") {
					others++
				} else {
					got = append(got, string(j.Payload))
				}
				held = append(held, j)
			}
			if len(jobs) == 0 {
				break
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, 1, others)
		require.False(t, f.exists("resqued:lined"))
		require.False(t, f.exists("resqued:awaited"))
		require.False(t, f.exists("resqued:lines:q"))
		require.False(t, f.exists("resqued:ready:q"))
	})
}

func TestLineCost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	for i := range 5000 {
		f.push("q", fmt.Sprintf(`{"class":"A","args":[1],"n":%d}`, i))
	}
	held := f.turn(8, nil, "q")
	before := commandsRun(t, f.redis)
	f.redis.ConfigResetStat(t.Context())
	before = 0
	const jobs = 1000
	for range jobs {
		held = f.turn(8, held, "q")
		require.Len(t, held, 1)
	}
	t.Logf("%.1f commands a job", float64(commandsRun(t, f.redis)-before)/jobs)
	t.Log(f.redis.Info(t.Context(), "commandstats").Val())
	_ = time.Second
}
