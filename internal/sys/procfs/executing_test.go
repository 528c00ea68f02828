//go:build linux

package procfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A process that is executing another program has no environment for a moment. It must not look
// like a process of no worker.
func TestExecutingProcessesAreNotOverlooked(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	for where, start := range map[string]string{"below this process": `exec "$0"`, "an orphan": `"$0" >/dev/null & echo $!`} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			name := unique("p-exec-" + where)
			script := filepath.Join(t.TempDir(), "again")
			require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700)) //nolint:gosec // it is to be executed
			cmd := exec.Command("sh", "-c", start, script)
			cmd.Env = []string{ProcEnv + "=" + name}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			pid := cmd.Process.Pid
			if where == "an orphan" {
				_, err = fmt.Fscan(out, &pid)
				require.NoError(t, err)
				require.NoError(t, cmd.Wait())
			}
			began := id(t, pid)
			t.Cleanup(func() { _, _ = began.Kill(), cmd.Wait() })
			s, executing := &NewSweeper(name, nil).sweep, 0
			for start := time.Now(); executing < 20 && time.Since(start) < 10*time.Second; {
				_, v, err := s.see(pid, nil)
				require.NoError(t, err)
				require.Contains(t, []Verdict{Ours, Unclear}, v)
				if v == Unclear {
					executing++
				}
			}
			t.Logf("seen while it was executing: %d times", executing)
			require.Equal(t, 1, sweep(t, name), "it is killed as soon as it can be told whose it is")
		})
	}
}
