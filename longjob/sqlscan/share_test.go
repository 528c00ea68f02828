//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// shop is a database with table t of a hundred files and table log.
type shop struct {
	*bed
	sql  func(statement string, args ...any)
	text func(query string, args ...any) string
	// deletes, destroys and reviews are runs over t. Arguments in conditions and statements are
	// ?, and exec runs a statement in the transaction of the function.
	deletes  func(where string, o sqlscan.Options, args ...any) scans
	destroys func(where string, o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans
	// review is a run that calls fn for each file that is not done.
	review func(o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans
	// batches is the same for batches.
	batches func(o sqlscan.Options, fn func(ctx context.Context, exec exec, files []file) error) scans
	// cut ends the connections of the job. statements are in the order in which a batch has them,
	// commit is the last one.
	cut        func()
	statements []string
	commit     string
	// transactions is a query for the number of transactions that have written log.
	transactions string
	begin        func() (in func(statement string) error, commit func() error)
	// transact is a transaction of another program. insert inserts a row that may be there, lock
	// locks one.
	transact     func(ctx context.Context, fn func(exec exec) error) error
	insert, lock string
	// crowded fills t with 4,000 rows and notes in table gone what is deleted.
	crowded string
}

type (
	exec  func(statement string, args ...any) error
	scans func(ctx context.Context, r *longjob.Runner) error
)

// both runs a test with each of the databases.
func both(t *testing.T, what string, o longjob.Options, fn func(t *testing.T, s *shop)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, o longjob.Options) *shop{"PostgreSQL": postgresShop, "MariaDB": mysqlShop} {
		t.Run(name+" "+what, func(t *testing.T) {
			t.Parallel()
			fn(t, open(t, o))
		})
	}
}

// numbered replaces each ? by the placeholder of PostgreSQL.
func numbered(statement string, args []any) string {
	for i := range args {
		statement = strings.Replace(statement, "?", fmt.Sprint("$", i+1), 1)
	}
	return statement
}

func postgresShop(t *testing.T, o longjob.Options) *shop {
	t.Helper()
	b := setup(t, o)
	b.sql(files)
	b.sql("ALTER TABLE log ADD n serial")
	q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "name <> 'done'"}
	in := func(ctx context.Context, tx pgx.Tx) exec {
		return func(statement string, args ...any) error {
			_, err := tx.Exec(ctx, numbered(statement, args), args...)
			return err
		}
	}
	within := func(ctx context.Context) exec {
		return func(statement string, args ...any) error {
			tx, err := sqlscan.Tx(ctx)
			if err != nil {
				return err
			}
			return in(ctx, tx)(statement, args...)
		}
	}
	return &shop{
		bed: b, sql: func(statement string, args ...any) { b.sql(numbered(statement, args), args...) }, text: b.text,
		statements: []string{"begin", "set_config", "SKIP LOCKED", "DELETE", "commit"}, commit: "commit",
		transactions: "SELECT count(DISTINCT xmin::text) FROM log",
		insert:       "INSERT INTO t VALUES (?, 'drop') ON CONFLICT DO NOTHING", lock: "SELECT FROM t WHERE id = ? FOR UPDATE", crowded: pgCrowded,
		deletes: func(where string, o sqlscan.Options, args ...any) scans {
			return b.deletes(numbered(where, args), o, args...)
		},
		destroys: func(where string, o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans {
			return b.destroys(where, o, func(ctx context.Context, r *longjob.Runner, tx pgx.Tx, f file) error {
				return fn(ctx, r, in(ctx, tx), f)
			})
		},
		review: func(o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans {
			return func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, q, o, pgx.RowToStructByName[file], func(ctx context.Context, f file) error {
					return fn(ctx, r, within(ctx), f)
				})
			}
		},
		batches: func(o sqlscan.Options, fn func(ctx context.Context, exec exec, files []file) error) scans {
			return func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ReviewingSelectBatches(ctx, r, "review", b.pool, q, o, pgx.RowToStructByName[file], func(ctx context.Context, files []file) error {
					return fn(ctx, within(ctx), files)
				})
			}
		},
		cut: func() {
			b.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1", b.pool.Config().ConnConfig.RuntimeParams["application_name"])
		},
		begin: func() (func(string) error, func() error) {
			tx := b.begin("SELECT")
			return func(statement string) error {
				_, err := tx.Exec(t.Context(), statement)
				return err
			}, func() error { return tx.Commit(t.Context()) }
		},
		transact: func(ctx context.Context, fn func(exec exec) error) error {
			return pgx.BeginFunc(ctx, b.other, func(tx pgx.Tx) error { return fn(in(ctx, tx)) })
		},
	}
}

func mysqlShop(t *testing.T, o longjob.Options) *shop {
	t.Helper()
	b := setupMySQL(t, o)
	b.sql(myHundred)
	b.sql("ALTER TABLE log ADD n int AUTO_INCREMENT PRIMARY KEY")
	q := sqlscan.MySQLQuery{Table: "t", Where: "name <> 'done'", Columns: []string{"id", "name"}}
	in := func(ctx context.Context, tx *sql.Tx) exec {
		return func(statement string, args ...any) error {
			_, err := tx.ExecContext(ctx, statement, args...)
			return err
		}
	}
	within := func(ctx context.Context) exec {
		return func(statement string, args ...any) error {
			tx, err := sqlscan.TxMySQL(ctx)
			if err != nil {
				return err
			}
			return in(ctx, tx)(statement, args...)
		}
	}
	return &shop{
		bed: b.bed, sql: b.sql, text: b.text, statements: []string{"begin", "SELECT @@", "LIMIT", "DELETE", "COMMIT"}, commit: "COMMIT",
		insert: "INSERT IGNORE INTO t VALUES (?, 'drop')", lock: "UPDATE t SET name = name WHERE id = ?", crowded: myCrowded,
		deletes: func(where string, o sqlscan.Options, args ...any) scans { return b.deletes(where, patient(o), args...) },
		destroys: func(where string, o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans {
			return b.destroys(where, patient(o), func(ctx context.Context, r *longjob.Runner, tx *sql.Tx, f file) error {
				return fn(ctx, r, in(ctx, tx), f)
			})
		},
		review: func(o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, exec exec, f file) error) scans {
			return func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "review", b.db, q, o, scanFile, func(ctx context.Context, f file) error {
					return fn(ctx, r, within(ctx), f)
				})
			}
		},
		batches: func(o sqlscan.Options, fn func(ctx context.Context, exec exec, files []file) error) scans {
			return func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ReviewingSelectBatchesMySQL(ctx, r, "review", b.db, q, o, scanFile, func(ctx context.Context, files []file) error {
					return fn(ctx, within(ctx), files)
				})
			}
		},
		cut: b.cut,
		begin: func() (func(string) error, func() error) {
			tx := b.begin()
			return func(statement string) error { return in(t.Context(), tx)(statement) }, tx.Commit
		},
		transact: func(ctx context.Context, fn func(exec exec) error) error {
			tx, err := b.other.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			if err := fn(in(ctx, tx)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
	}
}

// done marks a file as done.
func done(exec exec, f file) error {
	if err := exec("INSERT INTO log (id) VALUES (?)", f.ID); err != nil {
		return err
	}
	return exec("UPDATE t SET name = 'done' WHERE id = ?", f.ID)
}

// logged requires that all files are done, each once.
func (s *shop) logged() {
	s.t.Helper()
	require.Equal(s.t, "100", s.text("SELECT count(*) FROM t WHERE name = 'done'"))
	require.Equal(s.t, "100", s.text("SELECT count(*) FROM log"))
	require.Equal(s.t, "100", s.text("SELECT count(DISTINCT id) FROM log"))
}

// Rows of a ReviewingSelectLoop share a transaction.
func TestSharedTransaction(t *testing.T) {
	t.Parallel()
	small := patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour})
	both(t, "one commit for the rows of a batch", longjob.Options{MaxUnits: 2}, func(t *testing.T, s *shop) {
		commits := 0
		s.watch.on(s.commit, func() { commits++ })
		run := s.completes(s.review(small, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error { return done(exec, f) }))
		s.logged()
		require.EqualValues(t, 100, run.Steps[0].Done)
		require.Less(t, commits, 70, "some for each batch")
		if s.transactions != "" {
			require.Equal(t, "10", s.text(s.transactions))
		}
	})

	both(t, "is held for a tenth of the time", longjob.Options{}, func(t *testing.T, s *shop) {
		o := small
		o.HoldFor = 10 // nanoseconds
		commits := 0
		s.watch.on(s.commit, func() { commits++ })
		s.completes(s.review(o, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error { return done(exec, f) }))
		s.logged()
		require.Greater(t, commits, 100, "one for each row")
	})

	both(t, "a row that fails undoes itself alone", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		broken := errors.New("broken")
		calls := map[int64]int{}
		run := s.run(s.review(small, func(_ context.Context, r *longjob.Runner, exec exec, f file) error {
			calls[f.ID]++
			if err := longjob.SetState(r, "last", f.ID); err != nil {
				return err
			}
			if err := done(exec, f); err != nil || f.ID != 36 {
				return err
			}
			return broken
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "broken")
		require.Equal(t, "35", s.text("SELECT count(*) FROM t WHERE name = 'done'"))
		require.Equal(t, "35", s.text("SELECT count(DISTINCT id) FROM log"))
		require.Equal(t, "35", s.text("SELECT count(*) FROM log"))
		require.Equal(t, "35", string(run.State["last"]))
		require.Equal(t, []int{1, 2, 2, 2, 0}, []int{calls[30], calls[31], calls[35], calls[36], calls[37]})
		require.EqualValues(t, 35, run.Steps[0].Done)
		broken = nil
		require.NoError(t, s.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, s.goOn(run.UUID).Status)
		s.logged()
	})

	both(t, "a call that does not ask for it is not called again", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		calls := map[int64]int{}
		run := s.run(s.review(small, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			calls[f.ID]++
			if f.ID == 36 {
				return errors.Join(exec("INSERT INTO log (id) VALUES (1)"), errors.New("broken"))
			}
			s.sql("UPDATE t SET name = 'done' WHERE id = " + fmt.Sprint(f.ID))
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, []int{1, 1, 1, 0}, []int{calls[31], calls[35], calls[36], calls[37]})
		require.Equal(t, "0", s.text("SELECT count(*) FROM log"))
		require.Equal(t, "35", s.text("SELECT count(*) FROM t WHERE name = 'done'"))
	})

	both(t, "a panic leaves nothing locked and nothing done", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		run := s.run(s.review(small, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			require.NoError(t, done(exec, f))
			if f.ID == 5 {
				panic("as it should")
			}
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		in, commit := s.begin()
		require.NoError(t, in("SELECT * FROM t FOR UPDATE NOWAIT"))
		require.NoError(t, commit())
		require.Equal(t, "0", s.text("SELECT count(*) FROM log"))
	})

	for what, part := range map[string]string{"a statement": "UPDATE t", "the commit": ""} {
		both(t, "a connection that is cut before "+what, longjob.Options{}, func(_ *testing.T, s *shop) {
			n := 0
			s.watch.on(cmp.Or(part, s.commit), func() {
				if n++; n%17 == 16 {
					s.cut()
				}
			})
			s.completes(s.review(small, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error { return done(exec, f) }))
			s.logged()
		})
	}

	both(t, "a deadlock is tried again, with fewer rows", longjob.Options{}, func(t *testing.T, s *shop) {
		s.sql("CREATE TABLE u (id int PRIMARY KEY)")
		s.sql("INSERT INTO u VALUES (1)")
		o := small
		o.LockTimeout = time.Minute
		calls, result := 0, make(chan error, 1)
		s.completes(s.review(o, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			if calls++; calls == 3 { // the other has u and wants t, this one has t and wants u
				in, commit := s.begin()
				require.NoError(t, in("SELECT * FROM u FOR UPDATE"))
				if s.transactions == "" {
					require.NoError(t, in("INSERT INTO u SELECT seq FROM seq_2_to_1000")) // makes this one the victim
				} else {
					require.NoError(t, in("SET LOCAL deadlock_timeout = '1h'"))
				}
				go func() {
					err := in("SELECT * FROM t WHERE id = 1 FOR UPDATE")
					result <- errors.Join(err, commit())
				}()
				err := exec("UPDATE u SET id = 0 WHERE id = 1")
				require.Error(t, err)
				return err
			}
			return done(exec, f)
		}))
		require.NoError(t, <-result)
		s.logged()
	})

	both(t, "with several calls at a time each row has its own", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		o := small
		o.Parallel = 3
		var mu sync.Mutex
		calls := map[int64]int{}
		run := s.run(s.review(o, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			mu.Lock()
			calls[f.ID]++
			first := calls[36] == 1
			mu.Unlock()
			if err := done(exec, f); err != nil || f.ID != 36 || !first {
				return err
			}
			return errors.New("broken")
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "broken")
		require.Equal(t, "0", s.text("SELECT count(*) FROM log WHERE id = 36"))
		require.Equal(t, s.text("SELECT count(*) FROM t WHERE name = 'done'"), s.text("SELECT count(*) FROM log"))
		require.NoError(t, s.Requeue(t.Context(), run.UUID))
		run = s.goOn(run.UUID)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		s.logged()
		if s.transactions != "" {
			require.Equal(t, "100", s.text(s.transactions))
		}
	})

	both(t, "a batch has one", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		calls, broken := 0, true
		fn := s.batches(small, func(_ context.Context, exec exec, files []file) error {
			calls++
			for _, f := range files {
				if err := done(exec, f); err != nil {
					return err
				}
			}
			if broken && slices.ContainsFunc(files, func(f file) bool { return f.ID == 36 }) {
				return errors.New("broken")
			}
			return nil
		})
		run := s.run(fn)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, 4, calls)
		require.Equal(t, "30", s.text("SELECT count(*) FROM log"))
		broken = false
		s.completes(fn)
		s.logged()
	})

	both(t, "one that stands still for too long is not tried again and again", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		o := small
		o.IdleTimeout, o.Batch = time.Second, 1
		calls := 0
		run := s.run(s.review(o, func(ctx context.Context, _ *longjob.Runner, exec exec, f file) error {
			calls++
			require.NoError(t, done(exec, f))
			for exec("SELECT 1") == nil {
				select {
				case <-time.After(o.IdleTimeout + 100*time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, 1, calls, run.Error)
		require.Contains(t, run.Error, "IdleTimeout")
		require.Equal(t, "0", s.text("SELECT count(*) FROM log"))
	})

	both(t, "is there during a call only", longjob.Options{}, func(t *testing.T, s *shop) {
		var late exec
		s.completes(s.review(small, func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			if late != nil {
				require.ErrorContains(t, late("SELECT 1"), "during the call")
			}
			late = exec
			return done(exec, f)
		}))
		require.ErrorContains(t, late("SELECT 1"), "during the call")
		_, err := sqlscan.Tx(t.Context())
		require.ErrorContains(t, err, "ReviewingSelectLoop")
		_, err = sqlscan.TxMySQL(t.Context())
		require.ErrorContains(t, err, "ReviewingSelectLoop")
	})
}

// The row whose change fails at the commit is found by bisection.
func TestSharedTransactionThatCannotBeCommitted(t *testing.T) {
	t.Parallel()
	s := postgresShop(t, longjob.Options{Retries: -1})
	s.sql("CREATE TABLE parent (id bigint PRIMARY KEY); INSERT INTO parent SELECT i FROM generate_series(1, 100) i WHERE i <> 36")
	s.sql("ALTER TABLE log ADD FOREIGN KEY (id) REFERENCES parent DEFERRABLE INITIALLY DEFERRED")
	fn := s.review(patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour}), func(_ context.Context, _ *longjob.Runner, exec exec, f file) error { return done(exec, f) })
	run := s.run(fn)
	require.Equal(t, longjob.StatusFailed, run.Status)
	require.Contains(t, run.Error, "foreign key")
	require.Equal(t, "35", s.text("SELECT count(*) FROM log"))
	require.Equal(t, "35", s.text("SELECT max(id) FROM log"))
	s.sql("INSERT INTO parent VALUES (36)")
	s.completes(fn)
	s.logged()
}

// A deadlock ends a transaction of MySQL as a whole: what a function does after it has
// swallowed the error is not part of the transaction.
func TestSwallowedDeadlocks(t *testing.T) {
	t.Parallel()
	swallows := func(b *myBed, calls *int, result chan<- error, exec func(statement string) error) error {
		if *calls++; *calls != 3 {
			return nil
		}
		other := b.begin()
		b.in(other, "SELECT * FROM u FOR UPDATE")
		b.in(other, "INSERT INTO u SELECT seq FROM seq_2_to_1000")
		go func() {
			_, err := other.ExecContext(context.WithoutCancel(b.t.Context()), "SELECT * FROM t WHERE id = 1 FOR UPDATE")
			result <- errors.Join(err, other.Commit())
		}()
		require.ErrorContains(b.t, exec("SELECT * FROM u WHERE id = 1 FOR UPDATE"), "1213")
		return nil
	}
	prepare := func(t *testing.T) *myBed {
		t.Helper()
		b := setupMySQL(t, longjob.Options{Retries: -1})
		b.sql(myHundred)
		b.sql("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1)")
		return b
	}

	t.Run("ScanDestroy", func(t *testing.T) {
		t.Parallel()
		b := prepare(t)
		calls, result := 0, make(chan error, 1)
		run := b.run(b.destroys("", patient(sqlscan.Options{Batch: 10, LockTimeout: time.Minute}), func(ctx context.Context, _ *longjob.Runner, tx *sql.Tx, f file) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO log VALUES (?)", f.ID); err != nil {
				return err
			}
			return swallows(b, &calls, result, func(statement string) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
		}))
		require.NoError(t, <-result)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, "100", b.text("SELECT COUNT(*) FROM t"))
		require.Contains(t, run.Error, "return the error of a deadlock")
	})

	t.Run("ReviewingSelectLoop", func(t *testing.T) {
		t.Parallel()
		b := prepare(t)
		calls, result := 0, make(chan error, 1)
		run := b.run(b.reviews("name <> 'done'", patient(sqlscan.Options{Batch: 10, LockTimeout: time.Minute}), func(ctx context.Context, f file) error {
			tx, err := sqlscan.TxMySQL(ctx)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE t SET name = 'done' WHERE id = ?", f.ID); err != nil {
				return err
			}
			return swallows(b, &calls, result, func(statement string) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
		}))
		require.NoError(t, <-result)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "return the error of a deadlock")
	})
}
