package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestSecretsOfTheDaemon has a command look for secrets in its own environment and in that of
// its worker process.
func TestSecretsOfTheDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	d := harness.Start(t, harness.Options{
		Env: []string{
			"SMTP_PASS=S3CRET", "MY_PW=S3CRET", "GITHUB_PAT=S3CRET", "STRIPE_KEY=S3CRET", "APP_DATABASE_URL=S3CRET",
			"RESQUED_STATSD_PASSWORD=S3CRET", "BROKER=amqp://u:S3CRET@h", "PLAIN=yes",
		},
		Config: fmt.Sprintf(`
handlers:
  Look:
    command: [sh, -c, '{ cat /proc/$PPID/environ; env; pwd; echo; } | tr "\0" "\n" > %[1]s.part; mv %[1]s.part %[1]s']
`, seen),
	})
	d.Push("q", "Look", 1)
	var text []byte
	proctest.Await(t, patience, func() bool {
		var err error
		text, err = os.ReadFile(seen)
		return err == nil
	}, "what the command has seen")
	require.Contains(t, string(text), "RESQUED_ROLE=worker", "it has read the environment of its parent")
	require.Contains(t, string(text), "PLAIN=yes")
	require.NotContains(t, string(text), "S3CRET")
	require.NotContains(t, string(text), "REDIS_URL")
}

// TestVariablesOfCommands configures the environment of commands and changes it by a reload,
// which also applies to the start of worker processes.
func TestVariablesOfCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := func(lists string) string {
		return lists + fmt.Sprintf(`
handlers:
  Look:
    command: [sh, -c, '{ cat /proc/$PPID/environ; echo; env; echo; } | tr "\0" "\n" > %[1]s/part; mv %[1]s/part %[1]s/seen']
    env: {OWN_TOKEN: given}
`, dir)
	}
	d := harness.Start(t, harness.Options{
		Env:    []string{"STRIPE_KEY=S1", "AWS_SECRET_ACCESS_KEY=S2", "BILLING_HOST=S3", "OWN_TOKEN=S4", "PLAIN=S5"},
		Config: config("env_keep: ['AWS_*']\nenv_drop: ['BILLING_*']"),
	})
	seen := func(job int) string {
		file := filepath.Join(dir, "seen")
		_ = os.Remove(file)
		d.Push("q", "Look", job)
		var text []byte
		proctest.Await(t, patience, func() bool {
			var err error
			text, err = os.ReadFile(file)
			return err == nil
		}, "what the command has seen")
		return string(text)
	}
	times := func(text, part string) int { return strings.Count(text, part+"\n") }
	text := seen(1)
	for variable, want := range map[string]int{
		"STRIPE_KEY=S1": 0, "AWS_SECRET_ACCESS_KEY=S2": 2, "BILLING_HOST=S3": 0, "OWN_TOKEN=S4": 0, "OWN_TOKEN=given": 1, "PLAIN=S5": 2,
	} {
		require.Equal(t, want, times(text, variable), "%s, of the worker process and of the command:\n%s", variable, text)
	}

	d.Configure(config("env_keep: [STRIPE_KEY]\nenv_drop: [PLAIN]"))
	d.Signal(syscall.SIGHUP)
	d.AwaitLog("the new configuration is in force everywhere")
	text = seen(2)
	for variable, want := range map[string]int{
		"STRIPE_KEY=S1": 2, "AWS_SECRET_ACCESS_KEY=S2": 0, "BILLING_HOST=S3": 2, "OWN_TOKEN=S4": 0, "PLAIN=S5": 0,
	} {
		require.Equal(t, want, times(text, variable), "%s, of the worker process and of the command:\n%s", variable, text)
	}
}
