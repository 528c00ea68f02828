package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	t.Run("it shows what the configuration comes to, and where from", func(t *testing.T) {
		t.Parallel()
		r := from{
			yaml: "thread_count: 16\nqueues: [critical, 'reports:25%', 'img_*:200', 'tiny:1%', '!img_old']\ndrain_timeout: 120\n" +
				"handlers:\n  Thumb: {command: [python3, 'a b.py'], timeout: 2m, queue: img}\n  Pay: {command: [pay], max_run: 1h, on_leaving: USR2, at_most_once: true}\n",
			env: "WORKER_COUNT=4 REDIS_URL=redis://app:secret@h/0", flags: "--log-format json",
		}.mustLoad(t)
		var b strings.Builder
		require.NoError(t, WritePlan(&b, r))
		text := strings.ReplaceAll(b.String(), filepath.Dir(r.File)+"/", "")
		for _, want := range []string{
			`threads +64 = 4 × 16 +WORKER_COUNT \(env\), thread_count \(file\)`,
			`queues +4 in order of priority +queues \(file\)`,
			`  critical +any`,
			`  reports:25% +16 of 64`,
			`  img_\*:200 +64 of 64, each queue`,
			`  tiny:1% +1 of 64`,
			`  !img_old +never`,
			`config +resqued.yaml +--config \(flag\)`,
			`redis_url +redis://app:xxxxx@h/0 +REDIS_URL \(env\)`,
			`namespace +resque +default`,
			`drain_timeout +2m,requeue +drain_timeout \(file\)`,
			`pidfile +- +default`,
			`log_format +json +--log-format \(flag\)`,
			`  Thumb +python3 "a b.py", queue img, timeout 2m, kill_after 10s +resqued.yaml:5`,
			`  Pay +pay, max_run 1h, on_leaving USR2, kill_after 10s, at_most_once +resqued.yaml:6`,
			`warn  tiny:1% is 0 threads; the fork reads 0 as unlimited. Using 1.`,
		} {
			require.Regexp(t, `(?m)^`+want+`$`, text)
		}
	})

	t.Run("it has a line for every key", func(t *testing.T) {
		t.Parallel()
		shown := map[string]bool{"worker_count": true, "thread_count": true}
		for _, line := range Plan(from{}.mustLoad(t)) {
			shown[line.Key] = true
		}
		for _, k := range keys() {
			require.True(t, shown[k.name], k.name)
		}
	})

	t.Run("a password from a file is said to be one", func(t *testing.T) {
		t.Parallel()
		r := &Resolved{Config: Config{RedisURL: "redis://:secret@h", RedisPasswordFile: "/run/pw"}}
		require.Contains(t, Plan(r), PlanLine{Key: "redis_url", Value: "redis://:xxxxx@h, password from /run/pw", From: "default"})
	})

	t.Run("text from the file cannot drive the terminal", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `handlers: {A: {command: [a, "\e[2J\tb"]}}`}.mustLoad(t)
		var b strings.Builder
		require.NoError(t, WritePlan(&b, r))
		require.NotContains(t, b.String(), "\x1b")
	})
}
