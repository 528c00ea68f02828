//go:build linux

package procfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTaskLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		nproc uint64
		want  map[string]int64
	}{
		"version 2: the least of a group and those around it": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/resqued.service\n",
			"sys/fs/cgroup/system.slice/resqued.service/pids.max": "max\n",
			"sys/fs/cgroup/system.slice/pids.max":                 "700\n",
			"sys/fs/cgroup/pids.max":                              "900\n",
		}, unix.RLIM_INFINITY, map[string]int64{"/sys/fs/cgroup/system.slice/pids.max": 700}},
		"version 1": {map[string]string{
			"proc/self/cgroup":                 "9:name=systemd:/x\n8:cpu,pids:/jobs\n0::/\n",
			"sys/fs/cgroup/pids/jobs/pids.max": "50\n",
		}, unix.RLIM_INFINITY, map[string]int64{"/sys/fs/cgroup/pids/jobs/pids.max": 50}},
		"version 1 in a container, whose path is that outside": {map[string]string{
			"proc/self/cgroup":            "8:pids:/docker/4711\n",
			"sys/fs/cgroup/pids/pids.max": "60\n",
		}, unix.RLIM_INFINITY, map[string]int64{"/sys/fs/cgroup/pids/pids.max": 60}},
		"the user's and the machine's": {map[string]string{
			"proc/self/cgroup": "0::/\nnonsense\n", "sys/fs/cgroup/pids.max": "max\n",
			"proc/sys/kernel/threads-max": "5000\n", "proc/sys/kernel/pid_max": "32768\n",
		}, 20, map[string]int64{
			"RLIMIT_NPROC, which counts all processes of the user,": 20,
			"kernel.threads-max, which counts the whole machine,":   5000,
			"kernel.pid_max, which counts the whole machine,":       32768,
		}},
		"nothing": {nil, unix.RLIM_INFINITY, map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range tc.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			got := map[string]int64{}
			for _, limit := range taskLimits(root, tc.nproc) {
				require.NotEmpty(t, limit.Raise)
				got[limit.Name] = limit.Max
			}
			require.Equal(t, tc.want, got)
		})
	}
}
