//go:build unix

package sqlscan_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// shapes are tables and their contents: 100 rows, of which those with an odd n match.
var shapes = []struct {
	name, create, fill string
	query              sqlscan.Query
}{
	{
		name:   "numbers below zero",
		create: `CREATE TABLE t (id int PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT i - 50, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "uuid",
		create: `CREATE TABLE t (id uuid PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT gen_random_uuid(), i FROM generate_series(1, 100) i`,
	},
	{
		name:   "text, in bytes",
		create: `CREATE TABLE t (id text PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT CASE i % 4 WHEN 0 THEN 'a' WHEN 1 THEN 'B' WHEN 2 THEN 'ä''"\' ELSE '' END || i, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "text, in an order that is not that of its bytes",
		create: `CREATE TABLE t (id text COLLATE "de-x-icu" PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT CASE i % 4 WHEN 0 THEN 'a' WHEN 1 THEN 'B' WHEN 2 THEN 'ä' ELSE '-a' END || i, i FROM generate_series(1, 100) i`,
	},
	{
		name: "text in which large and small letters are the same",
		create: `CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			CREATE TABLE t (id text COLLATE blind PRIMARY KEY, n int)`,
		fill: `INSERT INTO t SELECT CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'A' ELSE 'ab' END || i, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "padded text",
		create: `CREATE TABLE t (id char(5) PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT 'x' || i, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "time in a session with habits of its own",
		create: `CREATE TABLE t (id timestamptz PRIMARY KEY, n int)`,
		fill:   `INSERT INTO t SELECT '2024-01-01'::timestamptz + i * interval '11 days 1.000001 s', i FROM generate_series(1, 100) i`,
	},
	{
		name:   "an enumeration, bytes and a domain with a decimal",
		create: `CREATE TYPE mood AS ENUM ('z', 'a'); CREATE DOMAIN price AS numeric(6,2); CREATE TABLE t (m mood, b bytea, p price, n int, PRIMARY KEY (m, b, p))`,
		fill:   `INSERT INTO t SELECT CASE WHEN i % 7 < 3 THEN 'z' ELSE 'a' END::mood, ('\x00' || lpad(to_hex(i % 5), 2, '0'))::bytea, i / 3.0, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "two columns, not in the order of the table",
		create: `CREATE TABLE t (b text, n int, a bigint, PRIMARY KEY (a, b))`,
		fill:   `INSERT INTO t SELECT chr(65 + i % 20), i, i % 7 FROM generate_series(1, 100) i`,
	},
	{
		name:   "names that want quotes",
		create: `DROP SCHEMA IF EXISTS "My.Schema" CASCADE; CREATE SCHEMA "My.Schema"; CREATE TABLE "My.Schema"."or""der" ("Select" bigint, "a.b" text, n int, PRIMARY KEY ("Select", "a.b"))`,
		fill:   `INSERT INTO "My.Schema"."or""der" SELECT i / 10, i, i FROM generate_series(1, 100) i`,
		query:  sqlscan.Query{Table: pgx.Identifier{"My.Schema", `or"der`}},
	},
	{
		name: "partitions",
		create: `CREATE TABLE t (part int, id bigint, n int, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
			CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2, 3)`,
		fill: `INSERT INTO t SELECT 1 + i % 3, i, i FROM generate_series(1, 100) i`,
	},
	{
		name:   "another unique index, downwards, with a column beside",
		create: `CREATE TABLE t (id bigint PRIMARY KEY, a int NOT NULL, "B" int NOT NULL, n int); CREATE UNIQUE INDEX ON t (a DESC, "B" DESC) INCLUDE (n)`,
		fill:   `INSERT INTO t SELECT i, i % 10, i, i FROM generate_series(1, 100) i`,
		query:  sqlscan.Query{Key: []string{"a", "B"}},
	},
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			b := setupAt(t, server, longjob.Options{}, "&datestyle=SQL,DMY&timezone=Asia/Kolkata")
			b.sql(shape.create)
			b.sql(shape.fill)
			q := shape.query
			if q.Table == nil {
				q.Table = pgx.Identifier{"t"}
			}
			q.Where, q.Args, q.Columns = "n % 2 = $1", []any{1}, []string{"n"}
			seen := map[int32]int{}
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDestroy(ctx, r, "see", b.pool, q, sqlscan.Options{Batch: 7, Window: 30, KeepRows: true}, pgx.RowTo[int32], func(_ context.Context, _ pgx.Tx, n int32) error {
					seen[n]++
					return nil
				})
			})
			require.Len(t, seen, 50)
			for n, times := range seen {
				require.Equal(t, 1, times, "row %d", n)
			}
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDelete(ctx, r, "delete", b.pool, q, sqlscan.Options{Batch: 7, Window: 30})
			})
			require.Equal(t, "50 50", b.text("SELECT count(*) FROM "+q.Table.Sanitize()+" UNION ALL SELECT count(*) FROM "+q.Table.Sanitize()+" WHERE n % 2 = 0"))
		})
	}
}

// Pools may be configured differently.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupAt(t, server, longjob.Options{}, "&default_query_exec_mode="+mode)
			b.sql("CREATE TABLE t (id uuid, at timestamptz, n int, PRIMARY KEY (at, id))")
			b.sql("INSERT INTO t SELECT gen_random_uuid(), now() - (i % 10) * interval '1 day', i FROM generate_series(1, 100) i")
			b.completes(b.deletes("n % 2 = $1 AND id IS NOT NULL", sqlscan.Options{Batch: 7, Window: 30}, 1))
			require.Equal(t, "50", b.text("SELECT count(*) FROM t"))
		})
	}
}

// Unsuitable tables are refused before anything is changed.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, create string
		query        sqlscan.Query
		want         string
		retries      int // 0: it is not tried again whatever is allowed
	}{
		{"no primary key", "CREATE TABLE t (id bigint)", sqlscan.Query{}, `"t" has no primary key`, 0},
		{"a view", "CREATE VIEW t AS SELECT 1 AS id", sqlscan.Query{}, `"t" has no primary key`, 0},
		{"no such index", "CREATE TABLE t (id bigint PRIMARY KEY, a int NOT NULL)", sqlscan.Query{Key: []string{"a"}}, `no unique index of just the columns ["a"]`, 0},
		{"an index of some rows", "CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX ON t (a) WHERE a > 0", sqlscan.Query{Key: []string{"a"}}, "no unique index", 0},
		{"an index of something else", "CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX ON t (abs(a))", sqlscan.Query{Key: []string{"a"}}, "no unique index", 0},
		{"NULL is allowed", "CREATE TABLE t (a int UNIQUE)", sqlscan.Query{Key: []string{"a"}}, "column \"a\" of the key may be NULL", 0},
		{"two directions", "CREATE TABLE t (a int NOT NULL, b int NOT NULL); CREATE UNIQUE INDEX ON t (a, b DESC)", sqlscan.Query{Key: []string{"a", "b"}}, "no unique index", 0},
		{"another collation", `CREATE TABLE t (a text NOT NULL); CREATE UNIQUE INDEX ON t (a COLLATE "de-x-icu")`, sqlscan.Query{Key: []string{"a"}}, "no unique index", 0},
		{"heirs", "CREATE TABLE t (id bigint PRIMARY KEY); CREATE TABLE u () INHERITS (t)", sqlscan.Query{}, `"t" has tables that inherit from it`, 0},
		{"no such table", "CREATE TABLE u ()", sqlscan.Query{}, `relation "t" does not exist`, -1},
		{"no table", "CREATE TABLE u ()", sqlscan.Query{Table: pgx.Identifier{}}, "no table", 0},
		{"a wrong condition", "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1)", sqlscan.Query{Where: "ID == 1"}, "operator does not exist", -1},
		{"an argument too many", "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1)", sqlscan.Query{Where: "id = $1", Args: []any{1, 2}}, "expected 1 arguments, got 2", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: c.retries, RetryAfter: time.Hour})
			b.sql(c.create)
			if c.query.Table == nil {
				c.query.Table = pgx.Identifier{"t"}
			}
			run := b.run(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDelete(ctx, r, "delete", b.pool, c.query, sqlscan.Options{})
			})
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Contains(t, run.Error, c.want)
			require.Contains(t, run.Error, `sqlscan: step "delete"`)
			require.Equal(t, 1, run.Failures)
		})
	}
}
