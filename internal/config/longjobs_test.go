package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLongJobs(t *testing.T) {
	t.Parallel()
	t.Run("a map says what is not as usual", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `
handlers:
  Plain: {command: [a], queue: q, long_job: true}
  Empty: {command: [a], queue: q, long_job: {}}
  None: {command: [a], long_job: false, timeout: 1m}
  Full:
    command: [a]
    queue: medium
    long_job: {requeue_queue: low, slice: 1m, grace: 5, check_in: 20s, retries: 7, retry_after: 10s, max_deaths: 9, keep: 1h, tenant_slices: 4, uuid_argument: true, state_limit: 2MiB}
  Once: {command: [a], queue: q, long_job: {retries: 0}}
`}.mustLoad(t)
		require.Equal(t, &HandlerLongJob{}, r.Handlers["Plain"].LongJob)
		require.Equal(t, &HandlerLongJob{}, r.Handlers["Empty"].LongJob)
		require.Nil(t, r.Handlers["None"].LongJob)
		require.Equal(t, &HandlerLongJob{
			RequeueQueue: "low", Slice: time.Minute, Grace: 5 * time.Second, CheckIn: 20 * time.Second, Retries: 7, RetryAfter: 10 * time.Second,
			MaxDeaths: 9, Keep: time.Hour, TenantSlices: 4, UUIDArgument: true, StateLimit: 2 << 20,
		}, r.Handlers["Full"].LongJob)
		require.Equal(t, -1, r.Handlers["Once"].LongJob.Retries, "0 is the default of package longjob")
		var plan []string
		for _, line := range r.planHandlers() {
			plan = append(plan, line.Value)
		}
		require.Contains(t, strings.Join(plan, "\n"), "a, queue medium, kill_after 10s, long_job in slices of 1m")
		require.Contains(t, strings.Join(plan, "\n"), "a, queue q, kill_after 10s, long_job\n")
	})

	for _, tc := range []struct{ name, yaml, want string }{
		{"a list", "A: {command: [a], queue: q, long_job: [a]}", `handlers.A.long_job (resqued.yaml:2): must be true, or a map: {requeue_queue: low, slice: 15s}`},
		{"neither true nor false", "A: {command: [a], queue: q, long_job: 15s}", `handlers.A.long_job "15s" (resqued.yaml:2): write true or false`},
		{"no queue", "A: {command: [a], long_job: true}", `handlers.A (resqued.yaml:2): has long_job but no queue; write queue: NAME`},
		{"a timeout beside it", "A: {command: [a], queue: q, long_job: true, timeout: 1h}", `handlers.A.timeout (resqued.yaml:2): does not go with long_job: its slices end by long_job.slice and long_job.grace; remove it`},
		{"a lock beside it", "A: {command: [a], queue: q, long_job: true, lock: {}}", `handlers.A.lock (resqued.yaml:2): does not go with long_job: its slices never overlap, and equal runs are told apart when they are enqueued; remove it`},
		{"a retry beside it", "A: {command: [a], queue: q, long_job: true, retry: {}}", `handlers.A.retry (resqued.yaml:2): does not go with long_job: see long_job.retries and long_job.retry_after; remove it`},
		{"at most once beside it", "A: {command: [a], queue: q, long_job: true, at_most_once: true}", `handlers.A.at_most_once (resqued.yaml:2): does not go with long_job: a slice that was interrupted runs again; remove it`},
		{"a slice of no time", "A: {command: [a], queue: q, long_job: {slice: 0}}", `handlers.A.long_job.slice "0" (resqued.yaml:2): must be above 0`},
		{"a pattern for a queue", "A: {command: [a], queue: q, long_job: {requeue_queue: '*'}}", `handlers.A.long_job.requeue_queue "*" (resqued.yaml:2): must be one queue, not a pattern or a list`},
		{"too small a state", "A: {command: [a], queue: q, long_job: {state_limit: 1}}", `handlers.A.long_job.state_limit "1" (resqued.yaml:2): must be 1KiB to 16MiB`},
		{"a typo", "A: {command: [a], queue: q, long_job: {slise: 1}}", `handlers.A.long_job.slise (resqued.yaml:2): unknown key; did you mean "slice"?`},
		{"what others call a field", "A: {command: [a], queue: q, long_job: {retention: 1h}}", `handlers.A.long_job.retention (resqued.yaml:2): unknown key; did you mean "keep"?`},
		{"a variable of a long job", "A: {command: [a], env: {RESQUED_LONG_RUN: x}}", `handlers.A.env.RESQUED_LONG_RUN (resqued.yaml:2): is set by resqued itself; use another name`},
	} {
		t.Run(tc.name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: "handlers:\n  " + tc.yaml}.load(t)
			require.EqualError(t, err, tc.want)
		})
	}
}
