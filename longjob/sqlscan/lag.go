package sqlscan

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ReplicaLag returns a function for Options.Lag. The function asks a primary of PostgreSQL for
// the largest lag of its connected replicas. Its user needs the rights of pg_monitor or
// pg_read_all_stats; without them the scan is refused when it begins.
func ReplicaLag(primary Querier) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		// Without the right, the rows exist but all their columns are NULL.
		rows, err := primary.Query(ctx, "SELECT current_user::text, pg_has_role('pg_read_all_stats', 'USAGE'), coalesce(extract(epoch FROM (SELECT max(replay_lag) FROM pg_stat_replication)), 0)::float8")
		if err != nil {
			return 0, err
		}
		lag, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[struct {
			User    string
			May     bool
			Seconds float64
		}])
		switch {
		case err != nil:
			return 0, err
		case !lag.May:
			return 0, refusal{fmt.Errorf("user %q may not see it in pg_stat_replication: GRANT pg_monitor TO %s", lag.User, pgx.Identifier{lag.User}.Sanitize())}
		}
		return time.Duration(lag.Seconds * float64(time.Second)), nil
	}
}

// showReplica has the statements for the state of a replica: of MariaDB, of MySQL from 8.0.22
// on, and of older versions.
var showReplica = []string{"SHOW ALL REPLICAS STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"}

const syntaxError = 1064

// ReplicaLagMySQL is ReplicaLag for MySQL and MariaDB, where each replica knows its own lag.
// Their users need the right REPLICATION CLIENT, in MariaDB REPLICA MONITOR. A server that is
// not a replica, or whose replication does not run, is an error.
func ReplicaLagMySQL(replicas ...*sql.DB) func(ctx context.Context) (time.Duration, error) {
	var knows atomic.Int32 // index of the statement that the servers know
	return func(ctx context.Context) (most time.Duration, err error) {
		if len(replicas) == 0 {
			return 0, refusal{errors.New("no replica is named")}
		}
		for i, replica := range replicas {
			var lag time.Duration
			for n := knows.Load(); ; n++ {
				if lag, err = replicaLag(ctx, replica, showReplica[n]); number(err) != syntaxError || int(n) == len(showReplica)-1 {
					break
				}
				knows.Store(n + 1)
			}
			if err != nil {
				return 0, fmt.Errorf("replica %d of %d: %w", i+1, len(replicas), err)
			}
			most = max(most, lag)
		}
		return most, nil
	}
}

func replicaLag(ctx context.Context, replica *sql.DB, show string) (most time.Duration, err error) {
	rows, err := replica.QueryContext(ctx, show)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	sources := 0
	for ; rows.Next(); sources++ {
		row, err := named(rows)
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseInt(cmp.Or(row["Seconds_Behind_Master"], row["Seconds_Behind_Source"]), 10, 64)
		if err != nil {
			why := []string{"its replication does not run, so it is not known how far it is behind", row["Last_IO_Error"], row["Last_SQL_Error"]}
			return 0, errors.New(strings.Join(slices.DeleteFunc(why, func(s string) bool { return s == "" }), ": "))
		}
		most = max(most, time.Duration(seconds)*time.Second)
	}
	switch {
	case rows.Err() != nil:
		return 0, rows.Err()
	case sources == 0:
		return 0, errors.New("the server is not a replica")
	}
	return most, nil
}

// denied reports whether an error of either database means that a right is missing.
func denied(err error) bool {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code == "42501"
	}
	return slices.Contains([]int{1044, 1142, 1143, 1227, 1370}, number(err))
}
