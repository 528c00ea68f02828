//go:build linux

package procfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOOMKills(t *testing.T) {
	t.Parallel()
	const vmstat, v1, v2 = "proc/vmstat", "memory.oom_control", "memory.events"
	for name, tc := range map[string]struct {
		files map[string]string
		want  OOM
	}{
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/resqued.service\n", vmstat: "oom_kill 9\n",
			"sys/fs/cgroup/system.slice/resqued.service/" + v2: "low 0\noom 7\noom_kill 3\noom_group_kill 0\n",
		}, OOM{3, "its control group"}},
		"version 2 in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/" + v2: "oom_kill 3\n",
		}, OOM{3, "its control group"}},
		"version 1 beside an empty version 2": {map[string]string{
			"proc/self/cgroup":                "9:name=systemd:/x\n4:cpu,memory:/jobs\n0::/\n",
			"sys/fs/cgroup/memory/jobs/" + v1: "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"sys/fs/cgroup/memory/" + v1:      "oom_kill 8\n",
		}, OOM{2, "its control group"}},
		"version 1 in a container": {map[string]string{
			"proc/self/cgroup": "4:memory:/docker/4711\n", "sys/fs/cgroup/memory/" + v1: "oom_kill 2\n",
		}, OOM{2, "its control group"}},
		"no control group": {map[string]string{
			"proc/self/cgroup": "0::/\nnonsense\n", vmstat: "nr_free_pages 12\noom_kill 1\n",
		}, OOM{1, "this machine"}},
		"an old kernel": {map[string]string{vmstat: "nr_free_pages 12\n"}, OOM{}},
		"nothing":       {nil, OOM{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range tc.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			require.Equal(t, tc.want, oomKills(root))
		})
	}
}
