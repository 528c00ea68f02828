package system_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// TestBadInput pushes malformed payloads. None of them may end a process, hold up the job
// behind it, or be lost.
func TestBadInput(t *testing.T) {
	t.Parallel()
	invalid := map[string]string{
		"not JSON":                    `{"class":`,
		"empty":                       ``,
		"a byte order mark":           "\ufeff" + `{"class":"Count","args":[1]}`,
		"bytes after the job":         `{"class":"Count","args":[1]} x`,
		"null":                        `null`,
		"an array":                    `[1,2]`,
		"a number":                    `42`,
		"a text":                      `"Count"`,
		"no class":                    `{"args":[1]}`,
		"an empty class":              `{"class":"","args":[1]}`,
		"a class that is a number":    `{"class":7,"args":[1]}`,
		"arguments that are a object": `{"class":"Count","args":{"id":1}}`,
		"two classes":                 `{"class":"Count","class":"Fail","args":[1]}`,
		"two spellings of class":      `{"class":"Count","CLASS":"Fail","args":[1]}`,
		"invalid UTF-8":               "{\"class\":\"Count\",\"args\":[\"\xff\xfe\"]}",
		"half a surrogate pair":       `{"class":"Count","args":["\ud800"]}`,
		"random bytes":                "\x00\x01\x02\x1b[31m\x7f\x80",
	}
	unknown := map[string]string{
		"an unknown class":           `{"class":"Nobody","args":[1]}`,
		"a class with control codes": `{"class":"Co\u0000unt\r\n\u001b[31m","args":[1]}`,
		"a class that is a path":     `{"class":"../../bin/sh","args":[1]}`,
		"a class that is HTML":       `{"class":"<script>alert(1)</script>","args":[1]}`,
		"a very long class":          fmt.Sprintf(`{"class":%q,"args":[1]}`, strings.Repeat("x", 10<<10)),
		"a class in another case":    `{"class":"count","args":[1]}`,
	}
	d := harness.Start(t, harness.Options{App: true, Threads: 2})
	pids := d.WorkerPIDs()
	total := 0
	for _, list := range []map[string]string{invalid, unknown} {
		for _, payload := range list {
			d.PushRaw("mail", payload)
			total++
		}
	}
	d.Push("mail", "Count", 7)
	d.AwaitNoted("ran", 1)
	failures := d.AwaitFailures(total)

	t.Run("every payload is kept as it was", func(t *testing.T) {
		kept := map[string]bool{}
		for _, f := range failures {
			kept[string(f.Payload)] = true
			require.NotEmpty(t, f.Exception)
			require.NotEmpty(t, f.Error)
			require.NotEmpty(t, f.FailedAt)
			require.Equal(t, "mail", f.Queue)
		}
		for name, payload := range unknown {
			require.Contains(t, kept, payload, name)
		}
		for name, payload := range invalid {
			wrapped := fmt.Sprintf(`{"class":"Resqued::InvalidPayload","args":[%q]}`,
				base64.StdEncoding.EncodeToString([]byte(payload)))
			require.Contains(t, kept, wrapped, name)
		}
	})
	t.Run("an unknown class is told which are known", func(t *testing.T) {
		for _, f := range failures {
			if string(f.Payload) == unknown["an unknown class"] {
				require.Contains(t, f.Error, "Count")
				require.Contains(t, f.Error, "Nobody")
			}
		}
	})
	t.Run("the same process worked on", func(t *testing.T) {
		require.Equal(t, pids, d.WorkerPIDs())
	})
	t.Run("control characters reach neither the log nor the title", func(t *testing.T) {
		require.NotContains(t, d.Log(), "\x1b[31m")
		require.NotContains(t, d.Log(), "\x00")
	})
}

// TestInvalidPayloadThatComesBack retries the failure of an invalid payload as Ruby's page
// does, by pushing what the record holds.
func TestInvalidPayloadThatComesBack(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Env: []string{"UNIQUE_QUEUES=once"}})
	wrapped := func(payload string) string {
		return fmt.Sprintf(`{"class":"Resqued::InvalidPayload","args":[%q]}`, base64.StdEncoding.EncodeToString([]byte(payload)))
	}
	d.PushRaw("mail", wrapped("not json"))
	failures := d.AwaitFailures(1)
	require.Equal(t, wrapped("not json"), string(failures[0].Payload), "wrapped once")
	require.Equal(t, "Resqued::InvalidPayload", failures[0].Exception)
	require.Equal(t, `invalid payload: not JSON: byte 1 is 'o' where "null" should stand: not json`, failures[0].Error)

	// A payload that another version has refused becomes a job again, also in a unique queue.
	d.PushRaw("mail", wrapped(wrapped(`{"class":"Count", "args":[7]}`)))
	d.AwaitNoted("ran", 1)
	d.PushRaw("once", wrapped(`{"class":"Count","args":[8]}`))
	d.AwaitNoted("ran", 2)
	require.Zero(t, d.Client.Exists(t.Context(), d.Key("queue:once"), d.Key("queue:once:uniqueue"), d.Key("queue:once:start_at")).Val())
	require.Len(t, d.AwaitFailures(1), 1)
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()

	t.Run("a queue that is not a list does not hold up the others", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Queues: "broken,mail"})
		require.NoError(t, d.Client.Set(ctx, d.Key("queue:broken"), "text", 0).Err())
		require.NoError(t, d.Client.SAdd(ctx, d.Key("queues"), "broken").Err())
		d.Push("mail", "Count", harness.Range(1, 5)...)
		d.AwaitNoted("ran", 5)
		d.AwaitLog("broken")
		require.Equal(t, "text", d.Client.Get(ctx, d.Key("queue:broken")).Val())
	})

	t.Run("a failed key that is not a list loses no failure", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		require.NoError(t, d.Client.Set(ctx, d.Key("failed"), "text", 0).Err())
		d.Push("mail", "Fail", 1)
		d.AwaitNoted("ran", 1)
		d.AwaitLog("failed")
		require.Equal(t, int64(1), d.Snapshot().InFlight)
		require.NoError(t, d.Client.Del(ctx, d.Key("failed")).Err())
		require.Contains(t, d.AwaitFailures(1)[0].Error, "fails as it should")
	})

	t.Run("a queue name of any kind is a name", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		names := []string{"a:b", "with space", "[x]", "ünïcode", strings.Repeat("q", 1000), "!", "\x1b[31m"}
		for i, name := range names {
			d.Push(name, "Count", i+1)
		}
		d.AwaitNoted("ran", len(names))
		require.Empty(t, d.Failures())
	})

	t.Run("a large payload is a job like any other", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Env: []string{"RESQUED_MAX_PAYLOAD=4MiB"}})
		d.PushRaw("mail",
			fmt.Sprintf(`{"class":"Count","args":[1],"pad":%q}`, strings.Repeat("x", 3<<20)),
			fmt.Sprintf(`{"class":"Count","args":[2],"pad":%q}`, strings.Repeat("x", 5<<20)),
			`{"class":"Count","args":[3]}`)
		d.AwaitNoted("ran", 2)
		require.Contains(t, d.AwaitFailures(1)[0].Error, "4")
		require.NotContains(t, d.Noted("ran"), "2")
	})
}

// TestBadConfiguration checks the errors for mistakes that people make in the configuration.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true})
	for name, c := range map[string]struct{ text, says string }{
		"a typo":                  {"worker_cuont: 4\n", "worker_count"},
		"a word for a number":     {"thread_count: many\n", "many"},
		"a negative number":       {"thread_count: -1\n", "-1"},
		"no YAML":                 {"worker_count: [\n", "resqued.yaml"},
		"a handler without words": {"handlers:\n  A: {command: []}\n", "A"},
	} {
		t.Run(name, func(t *testing.T) {
			// The environment overrides the file, so it must not set these.
			d.Configure(c.text)
			for _, verb := range [][]string{{"config", "check"}, {"work"}} {
				_, stderr, code := d.RunWithout([]string{"WORKER_COUNT", "THREAD_COUNT"}, append(verb, "--config", d.ConfigFile)...)
				require.Equal(t, 2, code, "%v: %s", verb, stderr)
				require.Contains(t, stderr, c.says)
			}
		})
	}
}
