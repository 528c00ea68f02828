package system_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestJobThatExitsAsForItsConfiguration lets a job exit with code 78, by which a worker process
// reports that it cannot use its configuration. A process that was ready could use it, so the
// code is the job's.
func TestJobThatExitsAsForItsConfiguration(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 1})
	d.PushRaw("q", `{"class":"Exit","args":[1,78]}`)
	f := d.AwaitFailures(1)
	require.Contains(t, f[0].Error, "exit")
	d.Push("q", "Count", 2)
	d.AwaitNoted("ran", 1)
	d.Signal(quit)
	require.Zero(t, d.Exit(), d.Log())
}

// TestFilesOfTheConfigurationAreReadOnce checks that worker processes do not read the files
// that the configuration names: the master passes their contents on. A file may be absent for a
// moment while it is replaced.
func TestFilesOfTheConfigurationAreReadOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{TLS: true, Args: []string{"--tls-auth-clients", "yes"}, Users: []string{"default on nopass ~* &* +@all", "alice on >S3CRET ~* &* +@all"}})
	dir := t.TempDir()
	ca, key, password, database := dir+"/ca.pem", dir+"/key.pem", dir+"/password", dir+"/database"
	pem, err := os.ReadFile(server.CAFile)
	require.NoError(t, err)
	private, err := os.ReadFile(server.KeyFile)
	require.NoError(t, err)
	for file, text := range map[string]string{ca: string(pem), key: string(private), password: "S3CRET\n", database: "postgres://me:S3CRET@127.0.0.1:1/none\n"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	d := harness.Start(t, harness.Options{
		Redis: server, JobsPerFork: 1, Env: []string{"REDIS_URL=rediss://alice@" + server.Addr},
		Config: fmt.Sprintf(`
redis_ca_file: %[1]s
redis_cert_file: %[1]s
redis_key_file: %s
redis_password_file: %s
database_url_file: %s
handlers:
  Work: {command: ["true"]}
`, ca, key, password, database),
	})
	for _, file := range []string{ca, key, password, database} {
		require.NoError(t, os.Remove(file))
	}
	d.Push("q", "Work", harness.Range(1, 4)...)
	d.AwaitProcessed(4, patience)
	require.False(t, d.Ended())
	require.Empty(t, d.Failures())
	for _, p := range d.Processes() {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		require.NotContains(t, string(argv)+string(environ), "S3CRET")
		require.NotContains(t, string(argv)+string(environ), "BEGIN ")
	}
	require.NotContains(t, d.Log(), "S3CRET")
	require.NotContains(t, d.Log(), "BEGIN ")

	// A reload reads them. Without them it is refused, and the old configuration stays in
	// force.
	d.Signal(hup)
	d.AwaitLog("the old one stays")
	d.Push("q", "Work", 5)
	d.AwaitProcessed(5, patience)
}
