package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestWhoMayWriteToRedis: data in Redis can only name a registered class and its arguments. No
// text in Redis becomes a program, an argument, a variable or a path.
func TestWhoMayWriteToRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen, pwned := filepath.Join(dir, "seen"), filepath.Join(dir, "pwned")
	d := harness.Start(t, harness.Options{
		Threads: 2, Env: []string{"RESQUED_PERSISTENT_SCHEDULES=true"},
		// The program appends its input, arguments and environment to a file.
		Config: fmt.Sprintf("handlers:\n  Mail: {command: [sh, -c, 'cat >>%[1]s; echo \"argv=$#\" >>%[1]s; env >>%[1]s']}\n", seen),
	})
	command := "touch " + pwned
	texts := []string{
		"$(" + command + ")", "`" + command + "`", "; " + command + " #", "| " + command, "\n" + command + "\n", "-c " + command,
		"{{" + command + "}}", "%s%n", "LD_PRELOAD=/tmp/x", "../../bin/sh", "/bin/sh",
	}
	mails := 0
	for _, text := range texts {
		// As an argument of a known class, with commands that a payload might contain.
		d.PushRaw("q", fmt.Sprintf(`{"class":"Mail","args":[%[1]q],"command":["sh","-c",%[2]q],"env":{"SHELL_EVIL":%[2]q},"handler":{"command":[%[2]q]},"dir":"/","runner":%[2]q}`, text, command))
		mails++
		// As a class and as a queue.
		d.PushRaw("q", fmt.Sprintf(`{"class":%q,"args":[]}`, text))
		d.PushRaw(text, fmt.Sprintf(`{"class":"Mail","args":[%q]}`, text))
		mails++
	}
	for _, class := range []string{"sh", "/bin/sh", "Mail;sh", "Object", "Kernel", "system", "*", "Mail ", "mail"} {
		d.PushRaw("q", fmt.Sprintf(`{"class":%q,"args":["-c",%q]}`, class, command))
	}
	// Orders, schedules and requests have verbs of their own, none of which starts a program.
	ctx := t.Context()
	var masters []string
	proctest.Await(t, patience, func() bool { masters = d.Keys("resqued:master:*"); return len(masters) > 0 }, "the entry of the master")
	key := func(name string) string { return d.Space + ":" + name }
	for _, master := range masters {
		id := strings.TrimPrefix(master, "resqued:master:")
		require.NotEmpty(t, id)
		require.NoError(t, d.Client.HSet(ctx, key("resqued:orders:"+id), "1", "9999999999999 sh "+command).Err())
	}
	require.NoError(t, d.Client.HSet(ctx, key("schedules"), "evil", fmt.Sprintf(`{"every":"1s","class":%q,"command":["sh","-c",%q],"queue":"q"}`, "$("+command+")", command)).Err())
	unknown := len(texts) + 9
	proctest.Await(t, patience, func() bool { s := d.Snapshot(); return s.Processed >= int64(mails+unknown) && s.InFlight == 0 }, "all jobs")

	require.NoFileExists(t, pwned)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.NotContains(t, string(text), "SHELL_EVIL")
	require.NotContains(t, string(text), "\nLD_PRELOAD=")
	require.NotRegexp(t, `argv=[1-9]`, string(text), "nothing of a job is put into the command line")
	for _, f := range d.Failures() {
		require.Equal(t, "Resqued::UnknownClass", f.Exception, "%s", f.Error)
	}
	require.GreaterOrEqual(t, len(d.Failures()), unknown)
	d.Signal(quit)
	require.Zero(t, d.Exit())
}
