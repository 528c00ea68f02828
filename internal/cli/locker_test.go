package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/locker"
)

// TestLockerScripts runs the scripts of testdata/locker, each in a database of its own.
func TestLockerScripts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	space := redistest.Namespace(t)
	var databases atomic.Int64
	run := func(url, statement string) (string, error) {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		rows, err := conn.Query(context.Background(), statement)
		if err != nil {
			return "", err
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			values, err := row.Values()
			return strings.Trim(fmt.Sprint(values), "[]"), err
		})
		return strings.Join(all, "\n"), err
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/locker",
		Setup: func(e *testscript.Env) error {
			name := fmt.Sprintf("script%d", databases.Add(1))
			if _, err := run(server.URL(""), "CREATE DATABASE "+name); err != nil {
				return err
			}
			e.Setenv("DATABASE_URL", server.URL(name))
			e.Setenv("REDIS_URL", redistest.Shared(t).URL())
			e.Setenv("RESQUE_NAMESPACE", fmt.Sprintf("%s:%d", space, databases.Load()))
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			program, err := exec.LookPath("resqued")
			e.Setenv("RESQUED", program)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":  exits,
			"await":  await,
			"signal": signalLast,
			// sql STATEMENT [REGEXP]: runs it, and compares its result.
			"sql": func(ts *testscript.TestScript, neg bool, args []string) {
				got, err := run(ts.Getenv("DATABASE_URL"), args[0])
				ts.Check(err)
				if len(args) > 1 && regexp.MustCompile(args[1]).MatchString(got) == neg {
					ts.Fatalf("%s: got %q, want %s", args[0], got, args[1])
				}
			},
		},
	})
}

func TestHolderName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "web-2 pid 811", holderName("host:web-2 pid:811 guid:00ff"))
	require.Equal(t, "somebody", holderName("somebody"))
}

// TestEndBelow: descendants in any process group are killed, except earlier ones.
func TestEndBelow(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("RESQUED_TEST_BELOW") == "" {
		// In a process of its own, which has no other children.
		cmd := exec.Command(os.Args[0], "-test.run=^TestEndBelow$")
		cmd.Env = append(os.Environ(), "RESQUED_TEST_BELOW=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	cmd := exec.Command("sh", "-c", "setsid sleep 1000 & echo; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	before, err := procfs.Descendants(nil)
	require.NoError(t, err)
	require.Len(t, before, 2)
	spared := map[procfs.ID]bool{before[0].ID: true}
	endBelow(spared)
	after, err := procfs.Descendants(nil)
	require.NoError(t, err)
	require.Len(t, after, 2)
	endBelow(nil)
	after, err = procfs.Descendants(nil)
	require.NoError(t, err)
	require.Empty(t, after)
	require.Error(t, cmd.Wait())
}

// The dashboard lists the locks in a database, none without their table, and hides keys as the command
// line does.
func TestDatabaseLocks(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	none, closed, err := databaseLocks(t.Context(), "")
	require.NoError(t, err)
	require.Nil(t, none)
	closed()
	url := server.URL("postgres")
	list, closed, err := databaseLocks(t.Context(), url)
	require.NoError(t, err)
	defer closed()
	locks, all, err := list(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, locks)
	require.True(t, all)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(t, inDatabase(t.Context(), url, func(pool *pgxpool.Pool) error { return locker.Migrate(t.Context(), pool, locker.DefaultTable) }))
	for _, key := range []string{"Payout-1", "Payout-2", "Payout-3"} {
		_, err = conn.Exec(t.Context(), "INSERT INTO locks (key, locked_by, locked_at, locked_until, sequence) VALUES ($1, 'w', now() at time zone 'utc', now() at time zone 'utc' + interval '1 hour', 1)", key)
		require.NoError(t, err)
	}
	locks, all, err = list(t.Context(), 2)
	require.NoError(t, err)
	require.False(t, all)
	require.Len(t, locks, 2)
	require.Equal(t, "Payout-1", locks[0].Key)
	require.Equal(t, store.LockHeld, locks[0].State)
	locks, all, err = list(redact.Into(t.Context(), redact.All()), 5)
	require.NoError(t, err)
	require.True(t, all)
	require.Contains(t, locks[2].Key, redact.Shown)
	l := lockListing()
	l.addRow(redact.Into(t.Context(), redact.All()), locker.Row{Key: "Payout-1", LockedBy: "w", Left: time.Minute})
	require.NotContains(t, fmt.Sprint(l.rows), "Payout")
}
