package sqlscan

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// statement is a statement under construction.
type statement struct {
	text strings.Builder
	args []any
}

func (st *statement) arg(v any) string {
	st.args = append(st.args, v)
	return fmt.Sprintf("$%d", len(st.args))
}

func (st *statement) add(format string, a ...any) { fmt.Fprintf(&st.text, format, a...) }

// span is a part of a table: the keys above from, up to and including to, restricted to those
// in keys. A nil field is no restriction.
type span struct {
	from, to []string
	keys     [][]string
}

// in adds the condition that a row belongs to a span.
func (s *scan) in(st *statement, sp span) string {
	var and []string
	if sp.from != nil {
		and = append(and, s.t.row()+" > "+s.t.value(st, sp.from))
	}
	if sp.to != nil {
		and = append(and, s.t.row()+" <= "+s.t.value(st, sp.to))
	}
	if sp.keys != nil {
		and = append(and, s.t.among(st, sp.keys))
	}
	if and == nil {
		return "true"
	}
	return strings.Join(and, " AND ")
}

// asking begins a statement that the condition of the query stands in.
func (s *scan) asking() (st *statement, where string) {
	st = &statement{args: append([]any{}, s.q.Args...)}
	if s.q.Where == "" {
		return st, "true"
	}
	return st, "(" + s.q.Where + "\n)" // the line ends a comment
}

// grace is how much longer than the server this side waits for a statement, in case the
// connection is dead without an error.
const grace = 10 * time.Second

// each runs a statement, calls fn for each row, and records the duration.
func (s *scan) each(ctx context.Context, tx pgx.Tx, st *statement, fn func(rows pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	began := time.Now()
	defer func() { s.slowest = max(s.slowest, time.Since(began)) }()
	rows, err := tx.Query(ctx, st.text.String(), st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanKey reads a row that begins with a key as text, and the columns after it.
func (s *scan) scanKey(rows pgx.Rows, more ...any) ([]string, error) {
	key := make([]string, len(s.t.cols))
	dest := make([]any, 0, len(key)+len(more))
	for i := range key {
		dest = append(dest, &key[i])
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	for _, part := range key {
		if !utf8.ValidString(part) { // in a database without an encoding
			return nil, fmt.Errorf("a key of %s is not UTF-8: %q", s.t.name, part)
		}
	}
	return key, nil
}

func (s *scan) keys(ctx context.Context, tx pgx.Tx, st *statement) (keys [][]string, err error) {
	err = s.each(ctx, tx, st, func(rows pgx.Rows) error {
		key, err := s.scanKey(rows)
		keys = append(keys, key)
		return err
	})
	return keys, err
}

func (s *scan) key(ctx context.Context, tx pgx.Tx, st *statement) ([]string, error) {
	keys, err := s.keys(ctx, tx, st)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return keys[0], nil
}

// highest returns the highest key of the table, or nil if it is empty.
func (s *scan) highest(ctx context.Context, tx pgx.Tx) ([]string, error) {
	st := &statement{}
	st.add("SELECT %s FROM %s ORDER BY %s DESC LIMIT 1", s.t.text(""), s.t.name, strings.Join(s.t.cols, " DESC, "))
	return s.key(ctx, tx, st)
}

// edge returns the key that is n rows after the beginning of a span, whether they match or not,
// or nil if there are fewer rows.
func (s *scan) edge(ctx context.Context, tx pgx.Tx, sp span, n int) ([]string, error) {
	st := &statement{}
	st.add("SELECT %s FROM %s WHERE %s", s.t.text(""), s.t.name, s.in(st, sp))
	st.add(" ORDER BY %s OFFSET %d LIMIT 1", s.t.list(), n-1)
	return s.key(ctx, tx, st)
}

// candidate is a row that matches.
type candidate struct {
	key []string
	// mine: this transaction has locked it. Otherwise another holds it or has changed it
	// meanwhile, or no lock was requested.
	mine bool
}

// candidates returns the first n rows of a span that match. With lock it locks those that are
// not locked, without waiting. The rows are determined first, so that each is either locked or
// known to be left.
func (s *scan) candidates(ctx context.Context, tx pgx.Tx, sp span, n int, lock bool) (found []candidate, err error) {
	st, where := s.asking()
	st.add("WITH resqued_seen AS MATERIALIZED (SELECT %s FROM %s", s.t.list(), s.t.name)
	st.add(" WHERE %s AND %s ORDER BY %s LIMIT %d) ", s.in(st, sp), where, s.t.list(), n)
	st.add("SELECT %s, ", s.t.text("resqued_s."))
	if lock {
		// A look into the index of the key for each, whatever the planner assumes about the
		// condition: because of OFFSET it is applied to the row once that is locked.
		st.add("resqued_m.resqued_mine IS NOT NULL FROM resqued_seen resqued_s LEFT JOIN LATERAL (SELECT true AS resqued_mine FROM (")
		st.add("SELECT * FROM %s WHERE %s = %s OFFSET 0 FOR UPDATE SKIP LOCKED", s.t.name, s.t.row(), tuple(s.t.behind("resqued_s.")))
		st.add(") AS %s WHERE %s) resqued_m ON true", s.q.Table[len(s.q.Table)-1:].Sanitize(), where)
	} else {
		st.add("false FROM resqued_seen resqued_s")
	}
	st.add(" ORDER BY %s", strings.Join(s.t.behind("resqued_s."), ", "))
	err = s.each(ctx, tx, st, func(rows pgx.Rows) error {
		var c candidate
		var err error
		c.key, err = s.scanKey(rows, &c.mine)
		found = append(found, c)
		return err
	})
	return found, err
}

// matching returns which of some rows match.
func (s *scan) matching(ctx context.Context, tx pgx.Tx, keys [][]string) ([][]string, error) {
	st, where := s.asking()
	unnested, values := s.t.unnest(st, keys)
	st.add("SELECT resqued_m.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM (SELECT * FROM %s WHERE %s = %s OFFSET 0) AS %s WHERE %s) resqued_m",
		unnested, s.t.text(""), s.t.name, s.t.row(), tuple(values), s.q.Table[len(s.q.Table)-1:].Sanitize(), where)
	return s.keys(ctx, tx, st)
}

// remove deletes rows and returns their number.
func (s *scan) remove(ctx context.Context, tx pgx.Tx, keys [][]string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	began := time.Now()
	defer func() { s.slowest = max(s.slowest, time.Since(began)) }()
	st := &statement{}
	st.add("DELETE FROM %s WHERE %s", s.t.name, s.t.among(st, keys))
	tag, err := tx.Exec(ctx, st.text.String(), st.args...)
	return tag.RowsAffected(), err
}

// estimate returns the planner's estimate of the number of matching rows.
func (s *scan) estimate(ctx context.Context, tx pgx.Tx) (int64, error) {
	st, where := s.asking()
	st.add("EXPLAIN (FORMAT JSON) SELECT FROM %s WHERE %s", s.t.name, where)
	var plan []byte
	err := s.each(ctx, tx, st, func(rows pgx.Rows) error { return rows.Scan(&plan) })
	if err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal(plan, &plans); err != nil || len(plans) == 0 {
		return 0, err
	}
	return int64(plans[0].Plan.Rows), nil
}
