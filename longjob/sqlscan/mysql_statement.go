package sqlscan

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// chunk is the maximum number of keys in a statement. With more, some servers scan the whole
// table.
const chunk = 500

func newMyStatement() *statement {
	return &statement{mark: func(int) string { return "?" }}
}

func (t *myTx) where(st *statement) string {
	if t.q.Where == "" {
		return "TRUE"
	}
	st.args = append(st.args, t.q.Args...)
	return "(" + t.q.Where + "\n)" // the newline ends a comment
}

// from returns the table with a hint to read it by the index of the key.
func (t *myTx) from() string { return t.table() + " FORCE INDEX (" + t.t.index + ")" }

func (t *myTx) in(st *statement, sp span) string {
	and := []string{"TRUE"}
	if sp.from != nil {
		and = append(and, t.t.beside(st, sp.from, ">", ">"))
	}
	if sp.to != nil {
		and = append(and, t.t.beside(st, sp.to, "<", "<="))
	}
	if sp.keys != nil {
		and = append(and, t.t.among(st, sp.keys))
	}
	return strings.Join(and, " AND ")
}

// timed returns a context for a statement, and a function that ends it. The function records
// the duration and returns the error of the statement.
func (t *myTx) timed(ctx context.Context, read bool) (context.Context, func(err error) error) {
	limit := t.o.StatementTimeout + t.l.statement + grace
	mine := t.flavour.readsOnly && !read
	if mine {
		limit = t.l.statement
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	stop := t.clock()
	return inner, func(err error) error {
		stop()
		defer cancel()
		if err != nil && mine && inner.Err() != nil && ctx.Err() == nil {
			return lateError{err}
		}
		return err
	}
}

func (t *myTx) each(ctx context.Context, st *statement, fn func(rows *sql.Rows) error) error {
	ctx, done := t.timed(ctx, true)
	return done(func() (err error) {
		rows, err := t.tx.QueryContext(ctx, st.text.String(), st.args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			if err := fn(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}())
}

func (t *myTx) alter(ctx context.Context, st *statement) (n int64, err error) {
	ctx, done := t.timed(ctx, false)
	result, err := t.tx.ExecContext(ctx, st.text.String(), st.args...)
	if err = done(err); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t *myTx) exec(ctx context.Context, text string) error {
	st := newMyStatement()
	st.add("%s", text)
	_, err := t.alter(ctx, st)
	return err
}

// commit waits longer than other statements: if it were given up, its outcome would be unknown,
// and a smaller batch might take as long.
func (t *myTx) commit(ctx context.Context) error {
	ctx, done := t.timed(ctx, true)
	_, err := t.tx.ExecContext(ctx, "COMMIT")
	return done(err)
}

// byKey does nothing, because each statement names its index.
func (t *myTx) byKey(context.Context) error { return nil }

func (t *myTx) keys(ctx context.Context, st *statement) (keys [][]string, err error) {
	err = t.each(ctx, st, func(rows *sql.Rows) error {
		key := make([]string, len(t.t.cols))
		dest := make([]any, len(key))
		for i := range key {
			dest[i] = &key[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		keys = append(keys, key)
		return t.t.check(key)
	})
	return keys, err
}

func (t *myTx) highest(ctx context.Context) ([]string, error) {
	st := newMyStatement()
	st.add("SELECT %s FROM %s ORDER BY %s LIMIT 1", t.t.text(), t.from(), t.t.order(" DESC"))
	return first(t.keys(ctx, st))
}

func (t *myTx) edge(ctx context.Context, sp span, n int, matching bool) ([]string, error) {
	st := newMyStatement()
	st.add("SELECT %s FROM %s WHERE %s", t.t.text(), t.from(), t.in(st, sp))
	if matching {
		st.add(" AND %s", t.where(st))
	}
	st.add(" ORDER BY %s LIMIT %d, 1", t.t.order(""), n-1)
	return first(t.keys(ctx, st))
}

// sweep uses the syntax for several tables, because a DELETE from one table takes no index
// hint.
func (t *myTx) sweep(ctx context.Context, sp span) (int64, error) {
	st := newMyStatement()
	st.add("DELETE %s FROM %s WHERE %s", t.table(), t.from(), t.in(st, sp))
	st.add(" AND %s", t.where(st))
	return t.alter(ctx, st)
}

// candidates reads the keys before it locks their rows, so that each is either locked or known
// to remain.
func (t *myTx) candidates(ctx context.Context, sp span, n int, lock bool) (found []candidate, err error) {
	var keys [][]string
	for _, part := range chunks(sp.keys) {
		one := sp
		one.keys = part
		st := newMyStatement()
		st.add("SELECT %s FROM %s WHERE %s", t.t.text(), t.from(), t.in(st, one))
		st.add(" AND %s ORDER BY %s LIMIT %d", t.where(st), t.t.order(""), n)
		some, err := t.keys(ctx, st)
		if err != nil {
			return nil, err
		}
		keys = append(keys, some...)
	}
	mine := map[string]bool{}
	if lock && len(keys) > 0 {
		locked, err := t.these(ctx, keys, " FOR UPDATE SKIP LOCKED")
		if err != nil {
			return nil, err
		}
		for _, key := range locked {
			mine[name(key)] = true
		}
	}
	for _, key := range keys {
		found = append(found, candidate{key, mine[name(key)]})
	}
	return found, nil
}

func (t *myTx) these(ctx context.Context, keys [][]string, lock string) (found [][]string, err error) {
	for _, part := range chunks(keys) {
		st := newMyStatement()
		st.add("SELECT %s FROM %s WHERE %s", t.t.text(), t.from(), t.t.among(st, part))
		st.add(" AND %s ORDER BY %s%s", t.where(st), t.t.order(""), lock)
		some, err := t.keys(ctx, st)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func (t *myTx) matching(ctx context.Context, keys [][]string) ([][]string, error) {
	return t.these(ctx, keys, "")
}

// remove deletes locked rows. The server may scan a small table as a whole, and then the
// statement meets the locks of others. A single row is found by its key.
func (t *myTx) remove(ctx context.Context, keys [][]string) (int64, error) {
	done, err := t.removeParts(ctx, chunks(keys))
	if number(err) == lockTimeout && len(keys) > 1 {
		// With innodb_rollback_on_timeout the transaction and its savepoint no longer exist,
		// and each further statement would be a transaction.
		if ended := t.exec(ctx, backToIt); ended != nil {
			return 0, err
		}
		return t.removeParts(ctx, slices.Collect(slices.Chunk(keys, 1)))
	}
	return done, err
}

func (t *myTx) removeParts(ctx context.Context, parts [][][]string) (done int64, err error) {
	for _, part := range parts {
		st := newMyStatement()
		st.add("DELETE FROM %s WHERE %s", t.table(), t.t.among(st, part))
		n, err := t.alter(ctx, st)
		if err != nil {
			return 0, err
		}
		done += n
	}
	return done, nil
}

// chunks splits keys into parts for statements. Without keys there is one empty part.
func chunks(keys [][]string) [][][]string {
	if len(keys) == 0 {
		return [][][]string{keys}
	}
	return slices.Collect(slices.Chunk(keys, chunk))
}

func readsMySQL[T any](scan func(rows *sql.Rows) (T, error)) fetch[T] {
	return func(ctx context.Context, tx transaction, keys [][]string) (all []T, err error) {
		t := tx.(*myTx)
		for _, part := range chunks(keys) {
			st := newMyStatement()
			st.add("SELECT %s FROM %s WHERE %s", columnList(t.q.Columns, quoted), t.from(), t.t.among(st, part))
			st.add(" ORDER BY %s", t.t.order(""))
			err := t.each(ctx, st, func(rows *sql.Rows) error {
				row, err := scan(rows)
				all = append(all, row)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		return all, nil
	}
}

func (t *myTx) estimate(ctx context.Context) (total int64, err error) {
	st := newMyStatement()
	st.add("%s SELECT 1 FROM %s WHERE %s", t.flavour.explain, t.table(), t.where(st))
	first := true
	err = t.each(ctx, st, func(rows *sql.Rows) error {
		row, err := named(rows)
		if err != nil || !first {
			return err
		}
		first = false
		n, _ := strconv.ParseFloat(row["rows"], 64) // NULL counts as 0
		share, err := strconv.ParseFloat(row["filtered"], 64)
		if err != nil {
			share = 100
		}
		total = int64(n * share / 100)
		return nil
	})
	return total, err
}

// named returns the columns of a row by their names; NULL as "".
func named(rows *sql.Rows) (map[string]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if err := rows.Scan(dest...); err != nil {
		return nil, err
	}
	row := make(map[string]string, len(columns))
	for i, column := range columns {
		row[column] = values[i].String
	}
	return row, nil
}
