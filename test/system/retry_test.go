package system_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// standing holds the number of retried jobs in each state at one instant.
type standing struct{ queued, inflight, delayed, processed, failures, failed int64 }

// jobs returns the number of all jobs: a failed run either waits for its retry or is in the
// failed list.
func (s standing) jobs() int64 {
	return s.queued + s.inflight + s.delayed + s.processed - s.failures + s.failed
}

var lookAtRetries = redis.NewScript(`
local p = ARGV[1] .. ':'
local queued, inflight, delayed = 0, 0, redis.call('ZCARD', p .. 'resqued:delayed')
for _, q in ipairs(redis.call('SMEMBERS', p .. 'queues')) do
  queued = queued + redis.call('LLEN', p .. 'queue:' .. q) + redis.call('LLEN', p .. 'resqued:suspects:' .. q)
end
for _, key in ipairs(redis.call('KEYS', p .. 'resqued:inflight:*')) do inflight = inflight + redis.call('HLEN', key) end
for _, at in ipairs(redis.call('ZRANGE', p .. 'delayed_queue_schedule', 0, -1)) do delayed = delayed + redis.call('LLEN', p .. 'delayed:' .. at) end
return {queued, inflight, delayed, tonumber(redis.call('GET', p .. 'stat:processed') or 0),
  tonumber(redis.call('GET', p .. 'stat:failed') or 0), redis.call('LLEN', p .. 'failed')}`)

func standingOf(d *harness.Daemon) (standing, error) {
	n, err := lookAtRetries.Run(context.Background(), d.Client, nil, d.Space).Int64Slice()
	if err != nil {
		return standing{}, err
	}
	return standing{n[0], n[1], n[2], n[3], n[4], n[5]}, nil
}

// awaitStanding waits for end, and requires all along that no job is missing.
func awaitStanding(t *testing.T, d *harness.Daemon, total int64, end func(s standing) bool) {
	t.Helper()
	looks := 0
	proctest.Await(t, 5*time.Minute, func() bool {
		s, err := standingOf(d)
		require.NoError(t, err)
		require.Equal(t, total, s.jobs(), "%+v", s)
		looks++
		return end(s)
	}, "the end of all jobs")
	t.Logf("every job was there in %d looks", looks)
}

// nothingOfRetries requires that no count and no waiting job is left.
func nothingOfRetries(t *testing.T, d *harness.Daemon) {
	t.Helper()
	for _, pattern := range []string{"resque-retry:*", "delayed*", "timestamps:*", "resqued:delayed", "resqued:deaths*"} {
		require.Empty(t, d.Keys(pattern))
	}
	require.Empty(t, d.Residue())
}

// flakyJobs returns payloads, half of which Ruby's scheduler may move.
func flakyJobs(class string, first, last int) []string {
	var payloads []string
	for _, id := range harness.Range(first, last) {
		extra := ""
		if id%2 == 0 {
			extra = fmt.Sprintf(`,"id":"%d"`, id)
		}
		payloads = append(payloads, fmt.Sprintf(`{"class":%q,"args":[%d]%s}`, class, id, extra))
	}
	return payloads
}

// TestRetryStorm works many jobs that fail twice and then pass: each runs exactly three times,
// with the right attempt, and nothing is left.
func TestRetryStorm(t *testing.T) {
	t.Parallel()
	jobs := harness.Jobs(2000)
	if harness.Full() {
		jobs = harness.Jobs(10_000)
	}
	o := fleet
	o.App = true
	d := harness.Start(t, o)
	began := time.Now()
	d.PushRaw("mail", flakyJobs("Flaky", 1, jobs/2)...)
	d.PushRaw("mail", flakyJobs("FlakyNow", jobs/2+1, jobs)...)
	total := int64(jobs)
	awaitStanding(t, d, total, func(s standing) bool { return s.processed == 3*total })
	t.Logf("%d jobs ran %d times in %s", jobs, 3*jobs, time.Since(began).Round(time.Millisecond))
	end, err := standingOf(d)
	require.NoError(t, err)
	require.Equal(t, standing{processed: 3 * total, failures: 2 * total}, end)
	for attempt := 1; attempt <= 4; attempt++ {
		noted := d.Noted(fmt.Sprint("attempt-", attempt))
		if attempt == 4 {
			require.Empty(t, noted)
			break
		}
		require.Len(t, noted, jobs)
		for id, times := range noted {
			require.Equal(t, "1", times, "job %s, attempt %d", id, attempt)
		}
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
	nothingOfRetries(t, d)
}

// TestRetryStormWithDeaths does the same while worker processes and a master are killed: jobs
// whose process died run again, none is lost and none is given up because of it.
func TestRetryStormWithDeaths(t *testing.T) {
	t.Parallel()
	jobs := harness.Jobs(1000)
	if harness.Full() {
		jobs = harness.Jobs(10_000)
	}
	o := fleet
	o.App, o.Env = true, []string{"RESQUED_MAX_DEATHS=1000"}
	d := harness.Start(t, o)
	next := successor(t, d, o)
	total := int64(jobs)
	d.PushRaw("mail", flakyJobs("Flaky", 1, jobs)...)
	for round := range 6 {
		awaitStanding(t, d, total, func(s standing) bool { return s.processed >= total*int64(round+1)/4 })
		if round == 5 {
			killMaster(t, d)
		}
		if pids := next.WorkerPIDs(); len(pids) > 0 {
			_ = syscall.Kill(pids[0], syscall.SIGKILL)
		}
	}
	awaitStanding(t, next, total, func(s standing) bool { return s.processed-s.failures == total })
	require.Empty(t, next.Failures())
	passed := map[string]bool{}
	for attempt := 3; attempt < 1000; attempt++ {
		noted := next.Noted(fmt.Sprint("attempt-", attempt))
		if len(noted) == 0 && attempt > 10 {
			break
		}
		for id := range noted {
			passed[id] = true
		}
	}
	require.Len(t, passed, jobs)
	next.Signal(quit)
	require.Zero(t, next.Exit())
	nothingOfRetries(t, next)
}

// TestRetriesExhausted checks that a job that never passes is in the failed list once, with its
// attempts. Killed jobs run again, except for those killed by their id.
func TestRetriesExhausted(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2})
	d.Push("mail", "Hopeless", 1, 2)
	awaitStanding(t, d, 2, func(s standing) bool { return s.failed == 2 })
	require.Equal(t, map[string]string{"1": "3", "2": "3"}, d.Noted("ran"))
	for _, f := range d.Failures() {
		require.Equal(t, 3, f.Attempts)
		require.Contains(t, f.Error, "no hope")
	}
	// A retry by a person starts a new count.
	out, errs, code := d.Run("failed", "retry", "--class", "Hopeless", "--limit", "1", "--yes")
	require.Zero(t, code, errs)
	require.Equal(t, "retried 1 job to mail\n", out)
	proctest.Await(t, patience, func() bool { return len(d.Failures()) == 3 }, "another failure")
	require.Equal(t, 3, d.Failures()[2].Attempts)
	ran := slices.Sorted(maps.Values(d.Noted("ran")))
	require.Equal(t, []string{"3", "6"}, ran)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	nothingOfRetries(t, d)
}

// TestRetriesOfCommands checks that commands get the number of their attempt, and that their
// exit codes decide whether there is another one.
func TestRetriesOfCommands(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "ran")
	d := harness.Start(t, harness.Options{Config: fmt.Sprintf(`
handlers:
  Try:
    command: [sh, -c, 'echo "$RESQUED_JOB_ATTEMPT of $RESQUED_JOB_MAX_ATTEMPTS" >> %[1]s; [ $RESQUED_JOB_ATTEMPT -gt 2 ] || exit 3']
    retry: {attempts: 4, backoff: [0, 300ms], retry_on: {exit_codes: [3]}}
  Other:
    command: [sh, -c, 'echo other >> %[1]s; echo it is full >&2; exit 4']
    retry: {backoff: [0], retry_on: {exit_codes: [3]}, never_on: {messages: [full]}}
  Slow:
    command: [sh, -c, 'sed "s/.*\(.attempt.:.*\),.enqueued.*/\1/" >> %[1]s; exec sleep 100']
    timeout: 3s # enough for its beginning
    retry: {attempts: 2, backoff: [0], retry_on: {exceptions: ["Resqued::Time*"]}}
`, out)})
	d.Push("mail", "Try", 1)
	d.AwaitProcessed(3, patience)
	d.Push("mail", "Other", 1)
	d.AwaitProcessed(4, patience)
	d.Push("mail", "Slow", 1)
	d.AwaitProcessed(6, patience)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "1 of 4\n2 of 4\n3 of 4\nother\n\"attempt\":1,\"max_attempts\":2\n\"attempt\":2,\"max_attempts\":2\n", string(text))
	failures := d.Failures()
	require.Len(t, failures, 2)
	require.Equal(t, [2]int{1, 2}, [2]int{failures[0].Attempts, failures[1].Attempts})
	require.Equal(t, "Resqued::CommandFailed", failures[0].Exception)
	require.Equal(t, "Resqued::Timeout", failures[1].Exception)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	nothingOfRetries(t, d)
}
