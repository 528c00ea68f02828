package sqlscan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func newStatement() *statement {
	return &statement{mark: func(n int) string { return fmt.Sprintf("$%d", n) }}
}

func (s *pgTx) in(st *statement, sp span) string {
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

// asking begins a statement that will contain the condition of the query.
func (s *pgTx) asking() (st *statement, where string) {
	st = newStatement()
	st.args = append([]any{}, s.q.Args...)
	if s.q.Where == "" {
		return st, "true"
	}
	return st, "(" + s.q.Where + "\n)" // the newline ends a comment
}

// each runs a statement, calls fn for each row, and records the duration.
func (s *pgTx) each(ctx context.Context, st *statement, fn func(rows pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	defer s.clock()()
	rows, err := s.tx.Query(ctx, st.text.String(), st.args...)
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

func (s *pgTx) scanKey(rows pgx.Rows, more ...any) ([]string, error) {
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

func (s *pgTx) keys(ctx context.Context, st *statement) (keys [][]string, err error) {
	err = s.each(ctx, st, func(rows pgx.Rows) error {
		key, err := s.scanKey(rows)
		keys = append(keys, key)
		return err
	})
	return keys, err
}

func (s *pgTx) highest(ctx context.Context) ([]string, error) {
	st := newStatement()
	st.add("SELECT %s FROM %s ORDER BY %s DESC LIMIT 1", s.t.text(""), s.t.name, strings.Join(s.t.cols, " DESC, "))
	return first(s.keys(ctx, st))
}

func (s *pgTx) edge(ctx context.Context, sp span, n int, matching bool) ([]string, error) {
	st, where := newStatement(), "true"
	if matching {
		st, where = s.asking()
	}
	st.add("SELECT %s FROM %s WHERE %s AND %s", s.t.text(""), s.t.name, s.in(st, sp), where)
	st.add(" ORDER BY %s OFFSET %d LIMIT 1", s.t.list(), n-1)
	return first(s.keys(ctx, st))
}

// hidden wraps a condition so that the planner cannot analyze it: its estimate must not lead
// away from the index of the key.
func (s *pgTx) hidden(where string) string {
	return fmt.Sprintf("CASE WHEN %s.tableoid <> 0 THEN %s END", s.q.Table[len(s.q.Table)-1:].Sanitize(), where)
}

func (s *pgTx) sweep(ctx context.Context, sp span) (int64, error) {
	st, where := s.asking()
	st.add("DELETE FROM %s WHERE %s AND %s", s.t.name, s.in(st, sp), s.hidden(where))
	return s.run(ctx, st)
}

func (s *pgTx) run(ctx context.Context, st *statement) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	defer s.clock()()
	tag, err := s.tx.Exec(ctx, st.text.String(), st.args...)
	return tag.RowsAffected(), s.detailed(err)
}

// detailed adds to an error which row another table refers to.
func (s *pgTx) detailed(err error) error {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok && server.Detail != "" && s.judge(err).foreign {
		return fmt.Errorf("%w: %s", err, server.Detail)
	}
	return err
}

func (s *pgTx) exec(ctx context.Context, sql string) error {
	st := newStatement()
	st.add("%s", sql)
	_, err := s.run(ctx, st)
	return err
}

// candidates selects the rows before it locks them, so that each is either locked or known to
// remain.
func (s *pgTx) candidates(ctx context.Context, sp span, n int, lock bool) (found []candidate, err error) {
	st, where := s.asking()
	st.add("WITH resqued_seen AS MATERIALIZED (SELECT %s FROM %s", s.t.list(), s.t.name)
	st.add(" WHERE %s AND %s ORDER BY %s LIMIT %d) ", s.in(st, sp), where, s.t.list(), n)
	st.add("SELECT %s, ", s.t.text("resqued_s."))
	if lock {
		// One lookup in the index of the key per row, whatever the planner estimates.
		st.add("resqued_m.resqued_mine IS NOT NULL FROM resqued_seen resqued_s LEFT JOIN LATERAL (SELECT true AS resqued_mine FROM %s", s.t.name)
		st.add(" WHERE %s = %s AND %s FOR UPDATE SKIP LOCKED) resqued_m ON true", s.t.row(), tuple(s.t.behind("resqued_s.")), s.hidden(where))
	} else {
		st.add("false FROM resqued_seen resqued_s")
	}
	st.add(" ORDER BY %s", strings.Join(s.t.behind("resqued_s."), ", "))
	err = s.each(ctx, st, func(rows pgx.Rows) error {
		var c candidate
		var err error
		c.key, err = s.scanKey(rows, &c.mine)
		found = append(found, c)
		return err
	})
	return found, err
}

func (s *pgTx) matching(ctx context.Context, keys [][]string) ([][]string, error) {
	st, where := s.asking()
	unnested, values := s.t.unnest(st, keys)
	st.add("SELECT resqued_m.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM %s WHERE %s = %s AND %s OFFSET 0) resqued_m",
		unnested, s.t.text(""), s.t.name, s.t.row(), tuple(values), s.hidden(where))
	return s.keys(ctx, st)
}

func (s *pgTx) remove(ctx context.Context, keys [][]string) (int64, error) {
	st := newStatement()
	st.add("DELETE FROM %s WHERE %s", s.t.name, s.t.among(st, keys))
	return s.run(ctx, st)
}

func (s *pgTx) estimate(ctx context.Context) (int64, error) {
	st, where := s.asking()
	st.add("EXPLAIN (FORMAT JSON) SELECT FROM %s WHERE %s", s.t.name, where)
	var plan []byte
	err := s.each(ctx, st, func(rows pgx.Rows) error { return rows.Scan(&plan) })
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
