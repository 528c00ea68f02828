package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScaleOfOddQueues: a queue whose key is not a list, or whose jobs were all put back for their locks, adds
// nothing; a job in hand counts although its queue is paused or has been removed. Without Redis there is
// no number. TestScale of test/system has the usual queues.
func TestScaleOfOddQueues(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail") // one job of q is in hand
	f.Do("SADD", "queues", "broken", "bounced", "half")
	f.Do("SET", "queue:broken", "text")
	f.Do("RPUSH", "queue:bounced", "{}", "{}")
	f.Do("RPUSH", "queue:half", "{}", "{}")
	f.Do("HSET", "locket:queue_lock_counters", "bounced", 2, "half", 1)
	scale := func(query string) []any {
		t.Helper()
		f.Server.Outdate()
		v := f.Get("/api/v1/scale" + query)
		return []any{v["jobs"], v["waiting"], v["running"]}
	}
	require.Equal(t, []any{2.0 + 1 + 2 + 1, 2.0 + 1 + 2, 1.0}, scale(""))
	require.Equal(t, []any{0.0, 0.0, 0.0}, scale("?queues=b*"))
	f.Do("SET", "pause:all", "1")
	require.Equal(t, []any{1.0, 0.0, 1.0}, scale(""))
	f.Do("SREM", "queues", "q")
	require.Equal(t, []any{1.0, 0.0, 1.0}, scale("?queues=q"))
	f.Do("DEL", "queues")
	f.Do("SET", "queues", "text")
	f.Server.Outdate()
	answer := f.Ask(http.MethodGet, "/api/v1/scale", "")
	require.GreaterOrEqual(t, answer.Code, 500, "the numbers of before are not an answer: %s", answer.Body)
}
