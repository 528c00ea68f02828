package system_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// Redacted arguments are in no log line, event or failure text of a daemon, although keys of
// locks and messages about invalid payloads contain arguments. Data written by the daemon,
// payloads and locks, stays complete.
func TestSecretsOfArguments(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-4711"
	d := harness.Start(t, harness.Options{Queues: "q", Threads: 6, Config: `
worker_count: 1
thread_count: 6
heartbeat_frequency: 2s
job_lock_duration: 7s
on_lock_lost: fail
resque_term_timeout: 2s
log_level: debug
log_jobs: true
locketed_queues: [q]
redact: {"*": [args]}
handlers:
  Sleep: {command: [sleep, "600"]}
  Short: {command: [sleep, "600"], lock: {timeout: 1s}}
  Class: {command: [sleep, "600"], lock: {}}
  Drop: {command: [sleep, "600"], lock: {on_locked: drop}}
  Fail: {command: [sleep, "600"], lock: {on_locked: fail}}
  Wrong: {command: [sleep, "600"], lock: {}}
`})
	payload := func(class string) string { return fmt.Sprintf(`{"class":%q,"args":[%q]}`, class, secret) }
	await := func(what, pattern string) []string {
		var keys []string
		proctest.Await(t, time.Minute, func() bool { keys = d.Keys(pattern); return len(keys) > 0 }, "%s", what)
		return keys
	}
	d.PushRaw("q", payload("Sleep"), payload("Class"))
	jobLock := await("a job lock", "*locket:job_locks:*Sleep*")[0]
	require.Contains(t, jobLock, secret, "the lock itself is as it was")
	classLock := await("a class lock", "*lock:Class:*")[0]
	require.Contains(t, classLock, secret)
	for _, class := range []string{"Drop", "Fail"} {
		require.NoError(t, d.Client.Set(t.Context(), d.Key("lock:"+class+":"+secret), "another", time.Hour).Err())
	}
	require.NoError(t, d.Client.RPush(t.Context(), d.Key("lock:Wrong:"+secret), "no lock").Err())
	d.PushRaw("q", payload("Drop"), payload("Fail"), payload("Wrong"), payload("Short"), `{"class":"Odd","args":{"a":"`+secret+`"}}`, secret)
	proctest.Await(t, time.Minute, func() bool { // a late beat takes them again, as after an outage
		for _, lock := range []string{jobLock, classLock} {
			require.NoError(t, d.Client.Set(t.Context(), d.Key(lock), "another", time.Hour).Err())
		}
		return strings.Count(d.Log(), "a job has lost its lock") == 2
	}, "the loss of two locks")

	failed := d.AwaitFailures(7)
	seen := map[string]string{}
	for _, f := range failed {
		seen[f.Exception] += f.Error + "\n"
		text, err := json.Marshal(f)
		require.NoError(t, err)
		require.NotContains(t, strings.Replace(string(text), string(f.Payload), "", 1), secret)
		if f.Exception != "Resqued::InvalidPayload" {
			require.Contains(t, string(f.Payload), secret, "a payload is as it was")
		}
	}
	for exception, parts := range map[string][]string{
		"Resqued::LockLost":       {"locket:Sleep[redacted]", "timeout:Class[redacted]"},
		"Resqued::LockHeld":       {"the class lock timeout:Fail[redacted]", "is held by another"},
		"Resqued::LockBroken":     {"timeout:Wrong[redacted]", "move it away"},
		"Resqued::InvalidPayload": {`"args" is an object`, "[redacted]"},
	} {
		for _, part := range parts {
			require.Contains(t, seen[exception], part, exception)
		}
	}
	d.AwaitLog("job dropped: its class lock is held")
	var events string
	proctest.Await(t, time.Minute, func() bool {
		out, _, _ := d.Run("events", "-o", "json")
		events = out
		return strings.Count(out, "lock lost") >= 2
	}, "events")
	require.Contains(t, events, "locket:Sleep[redacted]")
	require.NotContains(t, events, secret)
	for line := range strings.Lines(d.Log()) {
		require.NotContains(t, line, secret)
	}
}
