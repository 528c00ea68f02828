package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// host is a machine with a service of resqued, as far as a shell sees it.
type host struct {
	root string
	uid  uint32
}

// newHost writes files below a root that every user may enter, by path and mode 0600 unless it
// ends in .yaml.
func newHost(t *testing.T, files map[string]string) *host {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "host")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h := &host{root: root}
	for _, dir := range []string{"", "/cwd", "/etc/resqued", "/etc/credstore"} {
		require.NoError(t, os.MkdirAll(root+dir, 0o755))
		require.NoError(t, os.Chmod(root+dir, 0o755)) //nolint:gosec // for another user
	}
	for name, text := range files {
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".yaml") {
			mode = 0o644
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), mode))
	}
	return h
}

// run runs a verb there, and replaces the root by ROOT in its output.
func (h *host) run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Args[0] = "resqued"
	cmd.Dir, cmd.Env = h.root+"/cwd", append([]string{"ROOT=" + h.root, "GORACE=atexit_sleep_ms=0"}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if h.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.uid, Gid: h.uid}}
	}
	err := cmd.Run()
	if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // as Run returns it
		require.NoError(t, err)
	}
	plain := strings.NewReplacer(h.root, "ROOT")
	return plain.Replace(out.String()), plain.Replace(errs.String()), cmd.ProcessState.ExitCode()
}

// as returns the host as another user of it sees it.
func (h *host) as(uid uint32) *host { return &host{root: h.root, uid: uid} }

func TestServiceFromTheShell(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Users: []string{"default reset on >secret ~* &* +@all"}})
	bare := "redis://" + server.Addr + "/0"

	t.Run("root has the password of the service, whatever holds it", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		for _, files := range []map[string]string{
			{"etc/resqued/resqued.yaml": "redis_url: " + bare, "etc/credstore/resqued.redis-password": "secret\n"},
			{"etc/resqued/resqued.yaml": "", "etc/resqued/resqued.env": "REDIS_URL='redis://:secret@" + server.Addr + "/0'\n"},
			{"etc/resqued/resqued.yaml": "redis_url: " + bare + "\nredis_password_file: ROOT/secret", "secret": "secret"},
		} {
			h := newHost(t, files)
			path := h.root + "/etc/resqued/resqued.yaml"
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("ROOT"), []byte(h.root)), 0o644)) //nolint:gosec // as it is installed
			_, stderr, code := h.run(t, nil, "workers")
			require.Zero(t, code, "%v: %s", files, stderr)

			_, stderr, code = h.as(65534).run(t, nil, "workers")
			require.NotZero(t, code, "%v: %s", files, stderr)
			require.Contains(t, stderr, "sudo", "%v", files)
			require.NotContains(t, stderr, "secret@")
		}
	})
	t.Run("another user is told where it is and how to get at it", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "\nredis_url: " + bare, "etc/credstore/resqued.redis-password": "secret\n"})
		_, stderr, code := h.as(65534).run(t, nil, "workers")
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr, "NOAUTH")
		require.Contains(t, stderr, "redis_url is "+bare+", from ROOT/etc/resqued/resqued.yaml:2. The service may have a password from "+
			"ROOT/etc/credstore/resqued.redis-password, which root alone can read: run this as root (sudo), or name a file with the password "+
			"(RESQUED_REDIS_PASSWORD_FILE, or redis_password_file in the configuration), or put it into REDIS_URL")

		h = newHost(t, map[string]string{"etc/resqued/resqued.yaml": "redis_url: " + bare + "\nredis_password_file: /proc/1/environ"})
		_, stderr, code = h.as(65534).run(t, nil, "workers")
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, `redis_password_file "/proc/1/environ" (ROOT/etc/resqued/resqued.yaml:2): permission denied: it belongs to root (mode 0400); run this as root (sudo)`)

		h = newHost(t, map[string]string{"etc/resqued/resqued.yaml": ""})
		require.NoError(t, os.Chmod(h.root+"/etc/resqued/resqued.yaml", 0o600))
		_, stderr, code = h.as(65534).run(t, nil, "workers")
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, `config "ROOT/etc/resqued/resqued.yaml" (found): permission denied: it belongs to root (mode 0600); run this as root (sudo); to read no file: --config none`)
	})
	t.Run("a wrong password is said to be from where it is", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "redis_url: " + bare, "etc/credstore/resqued.redis-password": "wrong\n"})
		_, stderr, _ := h.run(t, nil, "workers")
		require.Contains(t, stderr, "The password is that of ROOT/etc/credstore/resqued.redis-password (credential of the service).")
		_, stderr, _ = h.run(t, []string{"REDIS_URL=" + bare}, "workers")
		require.Contains(t, stderr, "from environment REDIS_URL. No password is given")
		_, stderr, _ = h.run(t, []string{"REDIS_URL=redis://:wrong@" + server.Addr}, "workers", "-o", "json")
		require.Contains(t, stderr, `It holds the password that was refused."`)
	})
	t.Run("doctor says it once and ends", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "redis_url: " + bare})
		stdout, stderr, code := h.run(t, nil, "doctor")
		require.Equal(t, exitFailed, code)
		require.NotContains(t, stdout, "NOAUTH")
		require.Contains(t, stderr, "NOAUTH")
		require.Contains(t, stderr, "No password is given")
	})
	t.Run("the daemon says so as well", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "queues: [a]\nredis_url: " + bare})
		_, stderr, code := h.run(t, nil, "work")
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr, "from ROOT/etc/resqued/resqued.yaml:2. No password is given")
	})
}

// TestRefusedByRedis: if a server refuses to write, or to run a command, the error names it and says
// what to do.
func TestRefusedByRedis(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	run := func(t *testing.T, server *redistest.Server, args ...string) (stdout, stderr string) {
		t.Helper()
		h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "redis_url: redis://" + server.Addr + "/0"})
		stdout, stderr, code := h.run(t, nil, args...)
		require.NotZero(t, code)
		return stdout, stderr
	}
	t.Run("a user without rights", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Users: []string{"default reset on nopass ~* &* +@connection"}})
		_, stderr := run(t, server, "queues")
		require.Contains(t, stderr, "NOPERM")
		require.Contains(t, stderr, "redis_url is redis://"+server.Addr+"/0, from ROOT/etc/resqued/resqued.yaml:1. Its user lacks rights: docs/redis-keys.md lists")
		_, stderr = run(t, server, "enqueue", "Mail", "--queue", "mail")
		require.Equal(t, 1, strings.Count(stderr, "docs/redis-keys.md"), stderr)
		stdout, _ := run(t, server, "doctor")
		require.Contains(t, stdout, "→ Give this user of Redis the rights that docs/redis-keys.md lists.")
	})
	t.Run("a replica", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		require.NoError(t, server.Client(t).RPush(t.Context(), "resque:failed", "{}").Err())
		require.NoError(t, server.Client(t).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		_, stderr := run(t, server, "failed", "rm", "--all", "--yes")
		require.Contains(t, stderr, "READONLY")
		require.Contains(t, stderr, "redis_url is redis://"+server.Addr+"/0, from ROOT/etc/resqued/resqued.yaml:1. That server is a replica: name the primary.")
	})
}

func TestWhereTheAddressIsFrom(t *testing.T) {
	t.Parallel()
	nothing := "redis://127.0.0.1:1"
	h := newHost(t, map[string]string{"etc/resqued/resqued.yaml": "redis_url: " + nothing, "etc/resqued/mail.yaml": ""})
	for _, tc := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"queues"}, "redis_url is redis://127.0.0.1:1, from ROOT/etc/resqued/resqued.yaml:1. Start Redis"},
		{[]string{"REDIS_URL=" + nothing}, []string{"queues"}, "redis_url is redis://127.0.0.1:1, from environment REDIS_URL. Start Redis"},
		{nil, []string{"queues", "--redis-url", nothing}, "redis_url is redis://127.0.0.1:1, from flag --redis-url. Start Redis"},
		{[]string{"REDIS_URL=" + nothing}, []string{"enqueue", "Greet"}, "from environment REDIS_URL. Start Redis"},
	} {
		_, stderr, code := h.run(t, tc.env, tc.args...)
		require.Equal(t, exitUnreachable, code)
		require.Contains(t, stderr, tc.want)
	}
	stdout, _, _ := h.run(t, nil, "config", "show")
	require.Regexp(t, `(?m)^config +ROOT/etc/resqued/resqued.yaml +search$`, stdout)
	stdout, _, _ = h.run(t, nil, "config", "show", "--config", "none")
	require.Regexp(t, `(?m)^config +none +--config \(flag\)$`, stdout)
	stdout, _, _ = h.run(t, nil, "config", "show", "-o", "json")
	require.Contains(t, stdout, `"file":"ROOT/etc/resqued/resqued.yaml","file_from":{"kind":"search"}`)

	// A trial does not use the production configuration by accident.
	require.NoError(t, os.WriteFile(h.root+"/etc/resqued/resqued.yaml", []byte("worker_cuont: 1"), 0o644)) //nolint:gosec // as it is installed
	_, stderr, code := h.run(t, []string{"XDG_RUNTIME_DIR=" + h.root}, "queues", "--dev")                  // another user of this machine may run one
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, stderr, "resqued dev is not running")
	_, stderr, code = h.run(t, nil, "queues")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `unknown key; did you mean "worker_count"? ROOT/etc/resqued/resqued.yaml was found, not named: --config FILE reads another one, --config none reads none.`)
	_, stderr, code = h.run(t, nil, "queues", "-c", "a.yaml", "-c", "b.yaml")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `given already, with "a.yaml"; one file is read`)
}
