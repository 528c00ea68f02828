//go:build linux

package proctest_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

const trivialUnit = `[Service]
Type=exec
DynamicUser=yes
LoadCredential=secret:/etc/secret
ExecStart=/usr/local/bin/trivial
`

func TestSystemdContainer(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "trivial")
	proctest.WriteProgram(t, program, []byte("#!/bin/sh\necho \"hello from $(id -un): $(cat $CREDENTIALS_DIRECTORY/secret)\"\nexec sleep 1000\n"))
	unit := filepath.Join(dir, "trivial.service")
	require.NoError(t, os.WriteFile(unit, []byte(trivialUnit), 0o644))

	var cgroup string
	var pid int
	t.Run("a real systemd runs a sandboxed unit with a credential", func(t *testing.T) {
		container := proctest.Boot(t, proctest.SystemdContainerOptions{
			Binary: program,
			Units:  []string{unit},
			Files:  map[string]string{"/etc/secret": "s3cret"},
			Redis:  true,
		})
		container.Systemctl("start", "trivial")
		proctest.Await(t, 30*time.Second, func() bool {
			return strings.Contains(container.Journal("trivial"), "hello from trivial: s3cret")
		}, "the unit's output in the journal")
		require.Equal(t, "active", container.Property("trivial", "ActiveState"))

		conn, err := net.Dial("unix", container.RedisSocket())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		reply := make([]byte, 7)
		_, err = conn.Read(reply)
		require.NoError(t, err)
		require.Equal(t, "+PONG\r\n", string(reply))

		membership, err := os.ReadFile("/proc/" + strconv.Itoa(container.PID) + "/cgroup")
		require.NoError(t, err)
		cgroup = regexp.MustCompile(`resqued-systemd-[0-9]+-[0-9]+`).FindString(string(membership))
		pid = container.PID
	})
	if pid == 0 {
		t.Skip("no systemd container here")
	}
	t.Run("nothing is left of a container", func(t *testing.T) {
		require.NotEmpty(t, cgroup)
		for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			require.NoDirExists(t, filepath.Join(dir, cgroup))
		}
		require.False(t, proctest.Alive(pid))
		require.Empty(t, proctest.Find(func(p proctest.Process) bool {
			return strings.Contains(p.Title, "/usr/local/bin/trivial")
		}))
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		require.NotContains(t, string(mounts), "/resqued-systemd-")
	})
}
