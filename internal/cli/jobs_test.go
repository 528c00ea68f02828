package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

func TestRunningJobs(t *testing.T) {
	t.Parallel()

	t.Run("a part that may be several jobs is refused, and they are named", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		f.reserve(`{"class":"A","args":[1],"id":"9f1c55d0a7b2c3d4e5f60718293a4b5c"}`)
		f.reserve(`{"class":"B","args":[2],"id":"9f1c66d0a7b2c3d4e5f60718293a4b5c"}`)
		for _, verb := range []string{"show", "kill"} {
			exit, out, errs := f.run("jobs", verb, "9f1c")
			require.Equal(t, exitUsage, exit)
			require.Empty(t, out)
			require.Contains(t, errs, `"9f1c" may be any of 2 running jobs: 9f1c`)
			require.Contains(t, errs, "9f1c55d0a7b2 A[1]")
			require.Contains(t, errs, "9f1c66d0a7b2 B[2]")
		}
		require.Zero(t, f.redis.Exists(t.Context(), f.ns+":resqued:kills:p1").Val())
	})

	t.Run("a job that was told to stop is shown as killed", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"A","args":[1]}`)
		require.NoError(t, f.redis.HSet(t.Context(), f.ns+":resqued:proc:p1", store.InfoKilled, "x "+job.Token).Err())
		_, out, _ := f.run("jobs", "--no-headers")
		require.Regexp(t, `^p1/\S+  A  q  killed  `, out)
		_, out, _ = f.run("jobs", "show", "p1/"+job.Token)
		require.Contains(t, out, "state    killed\n")
		require.NoError(t, f.redis.ZAdd(t.Context(), f.ns+":resqued:procs", redis.Z{Member: "p1", Score: 1}).Err())
		_, out, _ = f.run("jobs", "--no-headers")
		require.Regexp(t, `^p1/\S+  A  q  stale  `, out)
	})

	t.Run("the request names the run, and its end is told as it was", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"A","args":[1]}`)
		exit, out, errs := f.run("jobs", "kill", "p1/"+job.Token, "--no-wait", "--force-after", "90s", "--requeue", "-o", "json")
		require.Zero(t, exit, errs)
		require.Equal(t, fmt.Sprintf(`{"id":"p1/%s","killed":false,"how":"asked","siblings_lost":0,"requeued":false}`+"\n", job.Token), out)
		kills, err := f.store.Kills(t.Context(), "p1")
		require.NoError(t, err)
		require.Equal(t, map[string]store.KillRequest{job.Token: {Grace: 90 * time.Second, Requeue: true}}, kills)
	})

	t.Run("a job that ends before anybody has seen the request has finished by itself", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"A","args":[1]}`)
		result := make(chan string, 1)
		go func() {
			exit, out, errs := f.run("jobs", "kill", "p1/"+job.Token)
			result <- fmt.Sprint(exit, " ", out, errs)
		}()
		require.Eventually(t, func() bool {
			return f.redis.HExists(t.Context(), f.ns+":resqued:kills:p1", job.Token).Val()
		}, time.Minute, time.Millisecond)
		_, err := f.store.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1", Completions: []store.Completion{{Job: &job, Kind: store.Done}}})
		require.NoError(t, err)
		require.Equal(t, "0 finished by itself: p1/"+job.Token+" A[1]\n", <-result)
	})

	t.Run("one that still runs is a failure, and it is said why", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"A","args":[1]}`)
		exit, out, errs := f.run("jobs", "kill", "p1/"+job.Token, "--force-after", "0s", "-o", "json")
		require.Equal(t, exitFailed, exit)
		require.Contains(t, out, `"killed":false,"how":"running"`)
		require.Contains(t, errs, `A[1] still runs: its process has not seen the request yet`)
	})

	t.Run("a job whose process is being recovered is nobody's to kill", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"A","args":[1]}`)
		_, _, err := f.store.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		exit, _, errs := f.run("jobs", "kill", "p1/"+job.Token)
		require.Equal(t, exitFailed, exit)
		require.Contains(t, errs, "is dead and is being recovered")
	})
}

// The content of a payload must not act on a terminal in any output format.
func TestHostileJobs(t *testing.T) {
	t.Parallel()
	f := newLockFixture(t)
	evil := `\u001b]0;x` + "\u009b" + `\u202e\r\n`
	f.reserve(`{"class":"` + evil + `","args":["` + "\u202e" + `"],"id":"` + evil + `"}`)
	f.reserve("\x1b[2J not a job")
	_, names, _ := f.run("jobs", "-o", "name")
	list := strings.Split(strings.TrimSpace(names), "\n")
	require.Len(t, list, 2)
	for _, args := range [][]string{
		{"jobs"},
		{"jobs", "-o", "wide"},
		{"jobs", "-o", "json"},
		{"jobs", "-o", "name"},
		{"jobs", "show", list[0]},
		{"jobs", "show", list[1]},
		{"jobs", "show", list[0], "-o", "json"},
		{"jobs", "kill", "--queue", "q"},
		{"jobs", "kill", list[0], "--no-wait"},
		{"jobs", "kill", list[1], "--no-wait"},
		{"jobs", "show", "\x1b]0;x"},
	} {
		_, out, errs := f.run(args...)
		require.NotEmpty(t, out+errs)
		for _, r := range out + errs {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q prints %q", args, r)
		}
	}
	n := f.redis.HLen(t.Context(), f.ns+":resqued:kills:p1").Val()
	require.EqualValues(t, 2, n, "a job can be named as it is shown, however it is spelled")
}
