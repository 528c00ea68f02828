//go:build unix

package sqlscan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// refusedLag requires that a scan without the right to query the lag fails at once, says what
// to do, and has done nothing.
func refusedLag(t *testing.T, b *bed, text func(query string, args ...any) string, fn func(ctx context.Context, r *longjob.Runner) error, says ...string) {
	t.Helper()
	run := b.run(fn)
	require.Equal(t, longjob.StatusFailed, run.Status, "without another attempt")
	require.Equal(t, 1, run.Slices)
	for _, part := range says {
		require.Contains(t, run.Error, part)
	}
	require.Equal(t, "100", text("SELECT count(*) FROM t"))
}

func TestReplicaLag(t *testing.T) {
	t.Parallel()
	b := setup(t, longjob.Options{})
	b.sql(files)
	// A replica that has not said yet how far it is.
	replica, err := pgconn.Connect(t.Context(), server.URL("")+"&replication=true")
	require.NoError(t, err)
	t.Cleanup(func() { _ = replica.Close(context.WithoutCancel(t.Context())) })
	role := strings.ReplaceAll(t.Name(), "Test", "r")
	b.sql("DROP ROLE IF EXISTS " + role + "; CREATE ROLE " + role + " LOGIN")
	config, err := pgxpool.ParseConfig(server.URL(""))
	require.NoError(t, err)
	config.ConnConfig.User = strings.ToLower(role)
	weak, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(weak.Close)

	o := patient(sqlscan.Options{Lag: sqlscan.ReplicaLag(weak)})
	refusedLag(t, b, b.text, b.deletes("", o), "GRANT pg_monitor TO", strings.ToLower(role), "table \"t\"")
	refusedLag(t, b, b.text, b.reviews("true", o, func(context.Context, file) error { return nil }), "GRANT pg_monitor TO")
	// So does a function of the program's own whose user lacks a right.
	o.Lag = func(ctx context.Context) (d time.Duration, err error) {
		return d, weak.QueryRow(ctx, "SELECT pg_read_file('/etc/hostname')").Scan(new(string))
	}
	refusedLag(t, b, b.text, b.deletes("", o), "permission denied")

	b.sql("GRANT pg_monitor TO " + role)
	o.Lag = sqlscan.ReplicaLag(weak)
	b.completes(b.deletes("", o))
	require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
}

type withoutRows struct{ err error }

func (q withoutRows) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, q.err }

// A Querier may return no rows with its error, as wrappers of a pool do.
func TestLagQuerierFails(t *testing.T) {
	t.Parallel()
	q := withoutRows{errors.New("no connection")}
	_, err := sqlscan.ReplicaLag(q)(t.Context())
	require.ErrorIs(t, err, q.err)
	_, err = sqlscan.Subjects(q, "SELECT 1")(t.Context())
	require.ErrorIs(t, err, q.err)
}

func TestReplicaLagMySQL(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, longjob.Options{})
	b.sql(myHundred)
	b.sql("CREATE OR REPLACE USER weak@localhost; GRANT SELECT ON " + b.name + ".* TO weak@localhost")
	weak := b.open(strings.Replace(maria.DSN(b.name), "root@", "weak@", 1), nil)
	lag := sqlscan.ReplicaLagMySQL(weak)
	refusedLag(t, b.bed, b.text, b.deletes("", patient(sqlscan.Options{Lag: lag})), "MONITOR privilege", "replica 1 of 1")

	b.sql("GRANT REPLICA MONITOR ON *.* TO weak@localhost")
	weak = b.open(strings.Replace(maria.DSN(b.name), "root@", "weak@", 1), nil)
	lag = sqlscan.ReplicaLagMySQL(weak)
	_, err := lag(t.Context())
	require.ErrorContains(t, err, "the server is not a replica")
	b.sql("CHANGE MASTER 'm' TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'x'")
	_, err = lag(t.Context())
	require.ErrorContains(t, err, "its replication does not run")
	b.sql("RESET REPLICA 'm' ALL")
	refusedLag(t, b.bed, b.text, b.deletes("", patient(sqlscan.Options{Lag: sqlscan.ReplicaLagMySQL()})), "no replica is named")
}

// A statement that returns nothing is not a query of subjects.
func TestSubjectsOfNoQuery(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, longjob.Options{})
	_, err := sqlscan.SubjectsMySQL(b.other, "DO 1")(t.Context())
	require.ErrorContains(t, err, "returns no columns")
}
