package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestSecretsOfTheDaemon has a command look for them, in its own environment and in that of
// the worker process that has started it.
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
