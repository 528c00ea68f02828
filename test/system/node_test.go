package system_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// nodeInstalled is the directory that TestMain removes.
var nodeInstalled string

// nodeDir returns the directory in which npm has installed node-resque, once per run.
var nodeDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "resqued-node-")
	if err != nil {
		return "", err
	}
	nodeInstalled = dir
	if err := os.CopyFS(dir, os.DirFS("testdata/node")); err != nil {
		return dir, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--omit=dev")
	npm.Dir = dir
	npm.WaitDelay = time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return dir, &npmError{err, string(out)}
	}
	return dir, nil
})

type npmError struct {
	err error
	out string
}

func (e *npmError) Error() string { return "npm install: " + e.err.Error() + ": " + e.out }

// node runs one of the scripts of testdata/node and returns its output. It skips the test where
// node-resque cannot be installed.
func node(t *testing.T, d *harness.Daemon, script string, args ...string) string {
	t.Helper()
	dir, err := nodeDir()
	if err != nil {
		t.Skipf("no node-resque: %v", err)
	}
	_, port, err := net.SplitHostPort(redistest.Shared(t).Addr)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, script), port, d.Space}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestNodeResque(t *testing.T) {
	t.Parallel()

	t.Run("jobs that node-resque enqueues are worked, each once", func(t *testing.T) {
		jobs := 2_000
		if harness.Full() {
			jobs = 20_000
		}
		o := fleet
		o.App = true
		d := harness.Start(t, o)
		node(t, d, "push.js", "mail", "Count", "1", strconv.Itoa(jobs))
		d.AwaitProcessed(int64(jobs), 2*time.Minute)
		drained(t, d, jobs, d.Noted("ran"), d.Noted("ran-by"))
	})

	t.Run("jobs that node-resque delays are worked, each once", func(t *testing.T) {
		o := fleet
		o.App = true
		d := harness.Start(t, o)
		node(t, d, "later.js", "mail", "Count", "1", "50", "1500")
		d.AwaitProcessed(50, time.Minute)
		drained(t, d, 50, d.Noted("ran"), d.Noted("ran-by"))
		require.Empty(t, d.Keys("timestamps:*"))
		require.Empty(t, d.Keys("delayed*"))
	})

	t.Run("node-resque works jobs that resqued enqueues", func(t *testing.T) {
		d := harness.Start(t, harness.Options{App: true, Queues: "other"})
		for _, args := range [][]string{
			{"Greet", "you"},
			{"Greet", "a <b> & \"c\" \u2028 ü"},
			{"Sum", "1", "2", "[3,{}]", "12345678901234567"},
			{"Greet"},
		} {
			_, stderr, code := d.Run(append([]string{"enqueue", "--config", d.ConfigFile, "--queue", "node", "--"}, args...)...)
			require.Zero(t, code, stderr)
		}
		out := node(t, d, "work.js", "node", "4")
		require.Equal(t, []string{
			`Greet ["you"]`,
			`Greet ["a <b> & \"c\" ` + "\u2028" + ` ü"]`,
			`Sum [1,2,[3,{}],12345678901234568]`, // JavaScript's numbers
			`Greet []`,
		}, strings.Split(strings.TrimSpace(out), "\n"))
	})

	t.Run("what failed here can be read there", func(t *testing.T) {
		d := harness.Start(t, harness.Options{App: true})
		node(t, d, "push.js", "mail", "Fail", "1", "3")
		failures := d.AwaitFailures(3)
		require.Contains(t, string(failures[0].Payload), `"queue":"mail"`)
	})
}
