//go:build linux

package procfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:        2048 kB\nMemFree:         1 kB\n"
	for name, tc := range map[string]struct {
		files          map[string]string
		machine, limit int64
	}{
		"of the machine":                {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n"}, 2 << 20, 0},
		"of a control group":            {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 2 << 20, 4096},
		"of a control group, version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8192\n"}, 2 << 20, 8192},
		"no limit, version 1":           {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2 << 20, 0},
		"more than there is":            {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n"}, 2 << 20, 0},
		"throttled before it is full":   {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n", "sys/fs/cgroup/memory.high": "4096\n"}, 2 << 20, 4096},
		"nothing known of the machine":  {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n"}, 0, 8192},
		"unknown":                       {nil, 0, 0},
		"nonsense":                      {map[string]string{"proc/meminfo": "MemTotal: much\n"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range tc.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			machine, limit := memory(root)
			require.Equal(t, tc.machine, machine)
			require.Equal(t, tc.limit, limit)
		})
	}
}
