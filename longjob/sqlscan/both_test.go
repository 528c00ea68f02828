//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// The functions for both databases keep the same promises.

func TestScanDelete(t *testing.T) {
	t.Parallel()
	small := sqlscan.Options{Batch: 10}

	both(t, "what matches is gone, the rest stays, and each batch is a unit", longjob.Options{MaxUnits: 1}, func(t *testing.T, s *shop) {
		run := s.completes(s.deletes("id % 3 > ? -- not kept", small, 0))
		require.Empty(t, s.text("SELECT id FROM t WHERE id % 3 > 0"))
		require.Equal(t, "33", s.text("SELECT count(*) FROM t"))
		require.EqualValues(t, 67, run.Steps[0].Done)
		require.Positive(t, run.Steps[0].Total, "the planner estimates it")
		require.Equal(t, run.Slices, int(run.Units), "each batch is one")
		require.GreaterOrEqual(t, run.Units, int64(7))
		require.LessOrEqual(t, s.watch.rows, int64(10))
	})

	both(t, "an empty table, and one of which nothing matches", longjob.Options{}, func(t *testing.T, s *shop) {
		run := s.completes(s.deletes("id < 0", sqlscan.Options{Batch: 1}))
		require.Equal(t, "100", s.text("SELECT count(*) FROM t"))
		require.EqualValues(t, 0, run.Steps[0].Done)
		require.EqualValues(t, 5, run.Units, "a window is 20 rows")
		s.sql("DELETE FROM t")
		s.completes(s.deletes("", small))
	})

	both(t, "what is added above the end stays, wherever a window ends", longjob.Options{}, func(t *testing.T, s *shop) {
		s.sql("CREATE TABLE more AS SELECT id + 100 AS id, name FROM t")
		s.watch.on("DELETE", nth(3, func() {
			s.sql("INSERT INTO t SELECT * FROM more")
			s.sql("DELETE FROM t WHERE id = 100")
		}))
		s.completes(s.deletes("", sqlscan.Options{Batch: 3, Window: 7}))
		require.Equal(t, "101 200 100", s.text("SELECT concat_ws(' ', min(id), max(id), count(*)) FROM t"))
	})
}

// Rows locked by others are skipped, and visited again in the end.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	both(t, "the scan goes on, and they go when they are free", longjob.Options{MaxUnits: 1}, func(t *testing.T, s *shop) {
		in, commit := s.begin()
		require.NoError(t, in("SELECT * FROM t WHERE id IN (3, 4, 50, 100) FOR UPDATE"))
		s.fn = s.deletes("name <> 'keep'", sqlscan.Options{Batch: 10})
		res, err := s.Enqueue(t.Context(), "Scan", nil)
		require.NoError(t, err)
		for s.text("SELECT id FROM t ORDER BY id") != "3 4 50 100" {
			_, more := s.slice()
			require.True(t, more, "it waits for them")
		}
		require.NoError(t, in("UPDATE t SET name = 'keep' WHERE id = 4"))
		require.NoError(t, commit())
		run := s.goOn(res.UUID)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.Equal(t, "4", s.text("SELECT id FROM t"))
		require.EqualValues(t, 99, run.Steps[0].Done)
	})

	both(t, "not for ever", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		in, _ := s.begin()
		require.NoError(t, in("SELECT * FROM t WHERE id = 7 FOR UPDATE"))
		run := s.run(s.deletes("", sqlscan.Options{Batch: 10, Patience: time.Second}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, sqlscan.ErrLocked.Error()+` for 1s: 1, one of them is ["7"]`)
		require.Equal(t, "7", s.text("SELECT id FROM t"))
	})

	both(t, "a function gets them last", longjob.Options{}, func(t *testing.T, s *shop) {
		in, commit := s.begin()
		require.NoError(t, in("UPDATE t SET name = 'changed' WHERE id IN (5, 6, 95)"))
		var seen []file
		s.completes(s.destroys("name <> 'x'", sqlscan.Options{Batch: 10, KeepRows: true, HoldFor: time.Nanosecond}, func(_ context.Context, _ *longjob.Runner, _ exec, f file) error {
			if seen = append(seen, f); len(seen) == 97 {
				return errors.Join(in("UPDATE t SET name = 'x' WHERE id = 6"), commit())
			}
			return nil
		}))
		require.Equal(t, []file{{5, "changed"}, {95, "changed"}}, seen[97:])
		require.Equal(t, "100", s.text("SELECT count(*) FROM t"), "KeepRows")
	})
}

func TestScanDestroy(t *testing.T) {
	t.Parallel()
	small := sqlscan.Options{Batch: 10}

	both(t, "each row is handed over in order, and what is done with it in the transaction is kept", longjob.Options{MaxUnits: 1}, func(t *testing.T, s *shop) {
		var seen []int64
		run := s.completes(s.destroys("id > 20", small, func(_ context.Context, r *longjob.Runner, exec exec, f file) error {
			seen = append(seen, f.ID)
			n, err := longjob.State(r, "n", 0)
			if err != nil {
				return err
			}
			r.Message(f.Name)
			if err := longjob.SetState(r, "n", n+1); err != nil {
				return err
			}
			return exec("INSERT INTO log (id) VALUES (?)", n+1)
		}))
		require.Len(t, seen, 80)
		require.True(t, slices.IsSorted(seen))
		require.Equal(t, "20 20", s.text("SELECT concat_ws(' ', count(*), max(id)) FROM t"))
		require.Equal(t, "80 80", s.text("SELECT concat_ws(' ', count(*), max(id)) FROM log"))
		require.EqualValues(t, 80, run.Steps[0].Done)
		require.Equal(t, "f100", run.Message)
		require.Equal(t, 9, run.Slices)
	})

	both(t, "an error undoes its batch, and no other", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		calls := 0
		broken := errors.New("broken")
		run := s.run(s.destroys("", small, func(_ context.Context, r *longjob.Runner, exec exec, f file) error {
			calls++
			if err := longjob.SetState(r, "last", f.ID); err != nil {
				return err
			}
			err := exec("INSERT INTO log (id) VALUES (?)", f.ID)
			if f.ID == 25 && broken != nil {
				return broken
			}
			return err
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "broken")
		require.Equal(t, 25, calls)
		require.Equal(t, "80", s.text("SELECT count(*) FROM t"))
		require.Equal(t, "20", s.text("SELECT max(id) FROM log"))
		require.Equal(t, "20", string(run.State["last"]))
		broken = nil
		require.NoError(t, s.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, s.goOn(run.UUID).Status)
		require.Equal(t, "100 100", s.text("SELECT concat_ws(' ', count(*), count(DISTINCT id)) FROM log"))
		require.Equal(t, 105, calls, "at most the batch is repeated")
	})

	both(t, "a panic leaves nothing locked", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		run := s.run(s.destroys("", sqlscan.Options{}, func(context.Context, *longjob.Runner, exec, file) error { panic("as it should") }))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "as it should")
		s.sql("SELECT * FROM t FOR UPDATE NOWAIT")
	})

	both(t, "a function that takes longer than a transaction may stand still is not called again and again", longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
		calls := 0
		run := s.run(s.destroys("", sqlscan.Options{Batch: 1, IdleTimeout: time.Second}, func(_ context.Context, _ *longjob.Runner, exec exec, _ file) error {
			for calls++; exec("SELECT 1") == nil; {
				<-time.After(1100 * time.Millisecond)
			}
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, 1, calls, run.Error)
		require.Contains(t, run.Error, "IdleTimeout")
		require.Equal(t, "100", s.text("SELECT count(*) FROM t"))
	})
}

func TestReviewingSelectLoop(t *testing.T) {
	t.Parallel()
	rename := func(s *shop, id int64) { s.sql("UPDATE t SET name = 'done' WHERE id = ?", id) }

	for name, o := range map[string]sqlscan.Options{"in windows": {Batch: 10, Window: 20}, "without": {Batch: 10, Window: -1}, "one by one": {HoldFor: time.Nanosecond}} {
		both(t, "until nothing matches, also what comes meanwhile, "+name, longjob.Options{MaxUnits: 2}, func(t *testing.T, s *shop) {
			o := patient(o)
			o.HoldFor = cmp.Or(o.HoldFor, time.Hour)
			calls := map[int64]int{}
			run := s.completes(s.review(o, func(_ context.Context, _ *longjob.Runner, _ exec, f file) error {
				calls[f.ID]++
				switch {
				case f.ID == 50 && calls[50] == 1: // one row before it, one after the end
					s.sql("INSERT INTO t VALUES (-1, 'new'), (200, 'new')")
				case f.ID == 60: // another transaction makes the change
					s.sql("DELETE FROM t WHERE id = 70")
				}
				rename(s, f.ID)
				return nil
			}))
			require.Empty(t, s.text("SELECT id FROM t WHERE name <> 'done'"))
			require.GreaterOrEqual(t, len(calls), 101)
			for id, n := range calls {
				require.Equal(t, 1, n, "row %d", id)
			}
			require.InDelta(t, 102, run.Steps[0].Done, 1)
		})
	}

	both(t, "a row that goes on matching is not worked for ever", longjob.Options{Retries: -1, MaxUnits: 1}, func(t *testing.T, s *shop) {
		calls := map[int64]int{}
		run := s.run(s.review(patient(sqlscan.Options{Batch: 10, Calls: 2, HoldFor: time.Hour}), func(_ context.Context, _ *longjob.Runner, _ exec, f file) error {
			if calls[f.ID]++; f.ID != 7 && f.ID != 77 {
				rename(s, f.ID)
			}
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, sqlscan.ErrStuck.Error()+": 2, after 2 calls each")
		require.Contains(t, run.Error, `["77"]`)
		require.Equal(t, "7 77", s.text("SELECT id FROM t WHERE name <> 'done' ORDER BY id"))
		require.Len(t, calls, 100)
		require.Equal(t, []int{1, 2, 2}, []int{calls[1], calls[7], calls[77]})
		require.EqualValues(t, 98, run.Steps[0].Done)

		rename(s, 7)
		rename(s, 77)
		require.NoError(t, s.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, s.goOn(run.UUID).Status, "another program has changed them")
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for i, part := range []string{"the transaction", "its limits", "the rows are read", "they are deleted", "the commit"} {
		both(t, "the connection is cut before "+part, longjob.Options{}, func(t *testing.T, s *shop) {
			s.watch.on(s.statements[i], nth(3, s.cut))
			run := s.completes(s.deletes("", sqlscan.Options{Batch: 10}))
			require.Equal(t, "0", s.text("SELECT count(*) FROM t"))
			require.EqualValues(t, 100, run.Steps[0].Done)
			require.Equal(t, 1, run.Slices)
		})
	}

	for _, calls := range []bool{false, true} {
		what := map[bool]string{false: "ScanDelete", true: "ScanDestroy"}[calls]
		both(t, "a row that another table refers to is named: "+what, longjob.Options{Retries: -1}, func(t *testing.T, s *shop) {
			s.sql("CREATE TABLE u (t bigint, FOREIGN KEY (t) REFERENCES t (id))")
			s.sql("INSERT INTO u VALUES (91), (70)")
			scan := s.deletes("", sqlscan.Options{Batch: 50})
			if calls {
				scan = s.destroys("", sqlscan.Options{Batch: 50}, func(context.Context, *longjob.Runner, exec, file) error { return nil })
			}
			run := s.run(scan)
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Contains(t, run.Error, "foreign key constraint")
			require.Contains(t, run.Error, `row ["70"]: `)
			require.Equal(t, "50", s.text("SELECT count(*) FROM t"), "the batch before is done")
			require.EqualValues(t, 50, run.Steps[0].Done)
		})
	}
}

// crowd changes rows of table t at random until stop is called: it inserts and deletes rows,
// toggles their names, and locks some for a while. It leaves rows alone whose id is divisible by
// four.
func (s *shop) crowd() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for ctx.Err() == nil {
				id := int64(random.IntN(4000))
				id += (4 - id%4) % 4
				id += 1 + int64(random.IntN(3))
				_ = s.transact(ctx, func(exec exec) error {
					for n := range int64(5) {
						statement := []string{
							s.insert,
							"DELETE FROM t WHERE id = ?",
							"UPDATE t SET name = 'keep' WHERE id = ?",
							"UPDATE t SET name = 'drop' WHERE id = ?",
							s.lock,
						}[random.IntN(5)]
						if err := exec(statement, id+4*n); err != nil {
							return err
						}
					}
					<-time.After(2 * time.Millisecond)
					return nil
				})
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

const pgCrowded = `DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL);
	INSERT INTO t SELECT i, CASE WHEN i % 8 = 0 THEN 'keep' ELSE 'drop' END FROM generate_series(1, 4000) i;
	CREATE TABLE gone (id bigint, name text, who text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO gone VALUES (OLD.id, OLD.name, current_setting('application_name')); RETURN OLD; END $$;
	CREATE TRIGGER note BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()`

const myCrowded = `DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, name varchar(9) NOT NULL);
	INSERT INTO t SELECT seq, IF(seq % 8 = 0, 'keep', 'drop') FROM seq_1_to_4000;
	CREATE TABLE gone (id bigint, name varchar(9));
	CREATE TRIGGER note AFTER DELETE ON t FOR EACH ROW INSERT INTO gone VALUES (OLD.id, OLD.name)`

func TestAmongOthers(t *testing.T) {
	t.Parallel()
	both(t, "nothing goes that does not match", longjob.Options{MaxUnits: 20}, func(t *testing.T, s *shop) {
		s.sql(s.crowded)
		stop := s.crowd()
		s.completes(s.deletes("name = 'drop'", sqlscan.Options{Batch: 20, Window: 100}))
		stop()
		require.Equal(t, "500", s.text("SELECT count(*) FROM t WHERE id % 8 = 0"))
		require.Equal(t, "0", s.text("SELECT count(*) FROM t WHERE id % 8 = 4"), "what no other has touched is gone")
		require.Equal(t, "500 500", s.text("SELECT concat_ws(' ', count(*), count(DISTINCT id)) FROM gone WHERE id % 4 = 0"))
		if s.transactions != "" {
			require.Equal(t, "0", s.text("SELECT count(*) FROM gone WHERE name <> 'drop' AND who LIKE 'job %'"))
			require.NotEqual(t, "0", s.text("SELECT count(*) FROM gone WHERE who = 'test'"), "no other was there")
		}
	})

	both(t, "each row is visited once", longjob.Options{MaxUnits: 20}, func(t *testing.T, s *shop) {
		s.sql(s.crowded)
		stop := s.crowd()
		seen := map[int64]int{}
		s.completes(s.destroys("name = 'drop'", sqlscan.Options{Batch: 20, KeepRows: true}, func(_ context.Context, _ *longjob.Runner, _ exec, f file) error {
			seen[f.ID]++
			if f.Name != "drop" {
				t.Errorf("row %d is %s", f.ID, f.Name)
			}
			return nil
		}))
		stop()
		for id := int64(4); id <= 4000; id += 4 {
			want := 1
			if id%8 == 0 {
				want = 0
			}
			require.Equal(t, want, seen[id], "row %d", id)
		}
		for id, n := range seen {
			require.Equal(t, 1, n, "row %d", id)
		}
	})
}
