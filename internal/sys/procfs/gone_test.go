//go:build linux

package procfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// viewPart says what a process sees of others, by its rights.
func viewPart() int {
	fmt.Print(view())
	return 0
}

// groupPart moves to a control group below GROUP and asks whether others are empty.
func groupPart() int {
	dir := os.Getenv("GROUP")
	for name, pid := range map[string]string{"own": strconv.Itoa(os.Getpid()), "strange": "", "strange/below": os.Getenv("STRANGER"), "empty": ""} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			fmt.Println(err)
			return 1
		}
		if pid == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name, "cgroup.procs"), []byte(pid), 0o644); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	own := cgroup()
	base := strings.TrimSuffix(own, "/own")
	_, other, _ := strings.Cut(base, "]")
	for _, group := range []string{
		own, base + "/empty", base + "/gone", base + "/strange", base + "/own/../empty", base,
		"cgroup:[1]" + other + "/empty", strings.TrimSuffix(base, other) + "/", strings.TrimSuffix(base, other) + "/../x", "", "x",
	} {
		fmt.Print(Traces{Cgroup: group}.InReach(), " ")
	}
	fmt.Println()
	return 0
}

func TestTraces(t *testing.T) {
	t.Parallel()

	t.Run("they survive Redis", func(t *testing.T) {
		t.Parallel()
		self, err := TracesOfSelf()
		require.NoError(t, err)
		require.Equal(t, os.Getpid(), self.PID)
		require.False(t, self.Dead())
		require.NotEmpty(t, self.View)
		fields := self.Fields()
		require.Len(t, fields, len(TraceFields()))
		for _, name := range TraceFields() {
			require.Contains(t, fields, name)
		}
		again, err := ParseTraces(fields)
		require.NoError(t, err)
		require.Equal(t, self, again)
		self.Start++
		require.True(t, self.Dead())
	})

	t.Run("those that name no process are refused", func(t *testing.T) {
		t.Parallel()
		for _, fields := range []map[string]string{
			nil,
			{"pid": "1"},
			{"start": "1"},
			{"pid": "0", "start": "1"},
			{"pid": "-1", "start": "1"},
			{"pid": "1x", "start": "1"},
			{"pid": "1", "start": "-1"},
			{"pid": "99999999999999999999", "start": "1"},
		} {
			_, err := ParseTraces(fields)
			require.Error(t, err, "%v", fields)
		}
	})

	t.Run("only who has all rights of the dead can tell by /proc that nothing is left", func(t *testing.T) {
		testlevel.Integration(t)
		t.Parallel()
		self, err := TracesOfSelf()
		require.NoError(t, err)
		self.Cgroup = ""
		require.True(t, self.InReach())
		require.False(t, Traces{}.InReach(), "of whom nothing is known")
		of := func(attr *syscall.SysProcAttr) string {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env, cmd.SysProcAttr = []string{partEnv + "=view"}, attr
			out, err := cmd.Output()
			if err != nil {
				t.Skipf("a process with other rights: %v", err)
			}
			return string(out)
		}
		require.Equal(t, self.View, of(nil), "another process with the same rights")
		if os.Getuid() != 0 {
			t.Skip("other users need root")
		}
		views := map[string]bool{self.View: true}
		for _, attr := range []*syscall.SysProcAttr{
			{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}},
			{Credential: &syscall.Credential{Uid: 54322, Gid: 54321}},
			{Credential: &syscall.Credential{Uid: 54321, Gid: 54322}},
			{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}}},
		} {
			v := of(attr)
			require.NotEmpty(t, v)
			require.False(t, views[v], "%+v", attr)
			views[v] = true
		}
	})

	t.Run("a control group is empty if it is gone, or holds only this process and its own", func(t *testing.T) {
		testlevel.Integration(t)
		t.Parallel()
		root, ok := cgroupRoot()
		if os.Getuid() != 0 || !ok {
			t.Skip("control groups need root, and version 2 of them")
		}
		dir := filepath.Join(root, fmt.Sprintf("resqued-proc-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("control groups: %v", err)
		}
		stranger := exec.Command("sleep", "1000")
		require.NoError(t, stranger.Start())
		t.Cleanup(func() {
			_, _ = stranger.Process.Kill(), stranger.Wait()
			require.Eventually(t, func() bool {
				for _, name := range []string{"own", "strange/below", "strange", "empty", ""} {
					_ = os.Remove(filepath.Join(dir, name))
				}
				_, err := os.Stat(dir)
				return os.IsNotExist(err)
			}, 30*time.Second, 10*time.Millisecond)
		})
		p := start(t, "group", "GROUP="+dir, "STRANGER="+strconv.Itoa(stranger.Process.Pid))
		require.Equal(t, "true true true false false false false false false false false", p.Line(t))
		require.Equal(t, "EOF", p.Line(t))
	})
}
