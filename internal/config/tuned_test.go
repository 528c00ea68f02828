package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTuned(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		processors int
		memory     int64
		want       Tuning
	}{
		"a small machine":             {1, 1 << 30, Tuning{1, 16, 1000, 512 << 20}},
		"two processors":              {2, 24 << 30, Tuning{2, 16, 1000, 1 << 30}},
		"six":                         {6, 16 << 30, Tuning{6, 10, 1000, 1 << 30}},
		"a large machine":             {64, 64 << 30, Tuning{64, 8, 1000, 512 << 20}},
		"little memory":               {4, 512 << 20, Tuning{4, 16, 1000, 0}},
		"nothing known of the memory": {4, 0, Tuning{4, 16, 1000, 0}},
		"no processor":                {0, 1 << 30, Tuning{1, 16, 1000, 512 << 20}},
		"more than can be configured": {5000, 1 << 50, Tuning{maxWorkers, 8, 1000, 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, Tuned(tc.processors, tc.memory))
		})
	}
}

// Half of the memory is for the worker processes, those that retire included.
func TestAutoRSS(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		workers, retiring int
		limit, want       int64
	}{
		"no limit":                    {4, 1, 0, 0},
		"four and one that retires":   {4, 1, 4 << 30, 409 << 20},
		"the smallest that is shared": {1, 1, 256 << 20, 64 << 20},
		"too little":                  {2, 1, 256 << 20, 0},
		"one process":                 {1, 1, 64 << 30, 16 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Config{WorkerCount: tc.workers, MaxRetiring: tc.retiring}
			require.Equal(t, tc.want, c.AutoRSS(tc.limit))
		})
	}
}

func TestMaxRSS(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]int64{"": RSSAuto, "RESQUED_MAX_RSS=auto": RSSAuto, "RESQUED_MAX_RSS=0": 0, "RESQUED_MAX_RSS=1GiB": 1 << 30} {
		require.EqualValues(t, want, from{env: env}.mustLoad(t).MaxRSS, env)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{
		"": true, "QUEUES=a": true,
		"WORKER_COUNT=1": false, "THREAD_COUNT=2": false, "JOBS_PER_FORK=1": false,
	} {
		require.Equal(t, want, from{env: env}.mustLoad(t).Defaults(), env)
	}
	require.Contains(t, DefaultsHint(Tuned(3, 0), "mydaemon"), "worker_count: 3, thread_count: 16, jobs_per_fork: 1000 (mydaemon config init")
}

func TestStarter(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Starter{
		"plain":             {Program: "resqued", Tuning: Tuned(2, 8<<30)},
		"a small machine":   {Program: "resqued", Tuning: Tuned(1, 0)},
		"queues of its own": {Program: "mydaemon", Tuning: Tuned(8, 8<<30), Queues: []string{"mail", "img:large", "*odd", "it's", "on", "12", "-"}},
		"another Redis":     {Program: "resqued", Tuning: Tuned(8, 8<<30), RedisURL: "redis-sentinel://a:1,b:2/m/0?x=#y", Namespace: "{app}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "resqued.yaml")
			require.NoError(t, os.WriteFile(file, []byte(s.Text()), 0o600))
			r, err := Load(Options{File: file, Environ: []string{}, NeedQueues: true})
			require.NoError(t, err)
			require.Empty(t, r.Warnings)
			if s.MaxRSS == 0 {
				s.MaxRSS = RSSAuto // it is left out
			}
			require.Equal(t, s.Tuning, Tuning{r.WorkerCount, r.ThreadCount, r.JobsPerFork, r.MaxRSS})
			require.False(t, r.Defaults())
			if s.RedisURL != "" {
				require.Equal(t, s.RedisURL, r.RedisURL)
				require.Equal(t, s.Namespace, r.Namespace)
			}
			if len(s.Queues) == 0 {
				require.Equal(t, "example", r.Queues.String())
				require.Equal(t, []string{"cat"}, r.Handlers["Example"].Command)
				return
			}
			require.Empty(t, r.Handlers)
			var queues []string
			for _, p := range r.Queues.Patterns {
				queues = append(queues, p.Text)
			}
			require.Equal(t, s.Queues, queues)
		})
	}
}
