package system_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

const adapter = "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper"

// wrappedJob returns a payload as the adapter of Rails 8 writes it.
func wrappedJob(class, id, args string, executions int) string {
	return fmt.Sprintf(`{"class":%q,"args":[{"job_class":%q,"job_id":%q,"provider_job_id":null,"queue_name":"mail","priority":null,"arguments":%s,`+
		`"executions":%d,"exception_executions":{},"locale":"en","timezone":"UTC","enqueued_at":%q,"scheduled_at":null}]}`,
		adapter, class, id, args, executions, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano))
}

// TestActiveJob checks that each job of a Rails application counts by its own class and
// arguments: for the lock, the configuration, and what people see and select.
func TestActiveJob(t *testing.T) {
	t.Parallel()
	statsd := startStatsd(t)
	d := harness.Start(t, harness.Options{Threads: 4, Config: `
statsd_key: k
statsd_host: 127.0.0.1
statsd_port: ` + strconv.Itoa(statsd.port) + `
handlers:
  Import: {command: [sh, -c, 'echo "$RESQUED_JOB_CLASS" >>ran; until [ -e go ]; do sleep 0.05; done']}
  Endless: {command: [sleep, "600"], timeout: 100ms}
  Bad: {command: ["false"], retry: {attempts: 2, backoff: [0]}}
  ` + adapter + `: {command: [sh, -c, 'cat >raw']}
`})
	type item struct {
		ID         string
		EnqueuedAt *time.Time `json:"enqueued_at"`
	}
	jobs := func(args ...string) []item {
		out, stderr, code := d.Run(append(args, "-o", "json")...)
		require.Zero(t, code, stderr)
		var list struct{ Items []item }
		require.NoError(t, json.Unmarshal([]byte(out), &list), out)
		return list.Items
	}

	d.PushRaw("mail", wrappedJob("Import", "id-1", `["é"]`, 0), strings.ReplaceAll(wrappedJob("Import", "id-2", `["é"]`, 3), "é", `\u00e9`), wrappedJob("Import", "id-3", `[8]`, 0))
	proctest.Await(t, patience, func() bool { return len(jobs("jobs", "--class", "Import")) == 2 }, "the job of each arguments")
	t.Run("the lock is that of its own class and arguments", func(t *testing.T) {
		waiting := jobs("jobs", "find", "--class", "Import")
		require.Len(t, waiting, 1)
		require.Equal(t, "id-2", waiting[0].ID)
		require.WithinDuration(t, time.Now().Add(-time.Hour), *waiting[0].EnqueuedAt, 5*time.Minute)
		require.Len(t, jobs("jobs", "find", "--class", adapter), 1, "as before")
		locks, _, _ := d.Run("locks", "-o", "json")
		require.Contains(t, locks, `"class":"Import"`)
	})
	t.Run("it is killed by its id", func(t *testing.T) {
		_, stderr, code := d.Run("jobs", "kill", "id-3", "--yes")
		require.Zero(t, code, stderr)
		proctest.Await(t, patience, func() bool { return len(jobs("failed", "--flat", "--class", "Import")) == 1 }, "its failure")
	})
	d.Touch("go")
	d.PushRaw("mail", wrappedJob("Endless", "id-4", `[]`, 0), wrappedJob("Bad", "id-5", `[]`, 0), wrappedJob("Bad", "id-6", `[1]`, 0), wrappedJob("Other", "id-7", `["raw"]`, 0))
	t.Run("timeout, retry, filter and group", func(t *testing.T) {
		proctest.Await(t, patience, func() bool { return len(d.Failures()) == 4 }, "the failures")
		require.Len(t, jobs("failed", "--flat", "--class", "Endless"), 1)
		require.Len(t, jobs("failed", "--flat", "--class", "Bad"), 2)
		require.Len(t, jobs("failed", "--flat", "--class", adapter), 4)
		out, _, _ := d.Run("failed", "show", jobs("failed", "--flat", "--class", "Bad")[0].ID, "-o", "json")
		require.Contains(t, out, `"attempts":2`)
		groups, _, _ := d.Run("failed")
		require.Regexp(t, `2 +Bad`, groups)
		require.NotContains(t, groups, adapter)
	})
	t.Run("the handler of the wrapper gets what it wraps", func(t *testing.T) {
		text := ""
		proctest.Await(t, patience, func() bool {
			raw, _ := os.ReadFile(filepath.Join(d.Dir, "raw"))
			text = string(raw)
			return strings.HasSuffix(text, "\n")
		}, "its input")
		require.Contains(t, text, `"class":"`+adapter+`"`)
		require.Contains(t, text, `"args":[{"job_class":"Other"`)
	})
	t.Run("log and metrics", func(t *testing.T) {
		ran, err := os.ReadFile(filepath.Join(d.Dir, "ran"))
		require.NoError(t, err)
		require.Equal(t, "Import\n", string(ran[:7]))
		require.Contains(t, d.Log(), `"class":"Endless"`)
		proctest.Await(t, patience, func() bool { return statsd.count("k.Bad") == 4 }, "a metric of its class")
	})
}
