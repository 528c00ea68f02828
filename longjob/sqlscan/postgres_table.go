package sqlscan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table describes a table for the statements.
type table struct {
	name string // quoted
	// cols are the quoted columns of the key, types the names of their types.
	cols, types []string
}

// indexes queries the indexes whose columns can be the key: unique, over all rows, in the order
// of the columns themselves. An index with another collation, or with mixed directions, does
// not support ORDER BY.
const indexes = `SELECT i.indisprimary, bool_and(a.attnotnull),
	array_agg(a.attname::text ORDER BY k.place), array_agg(format_type(a.atttypid, -1) ORDER BY k.place),
	coalesce(array_agg(a.attname::text ORDER BY k.place) FILTER (WHERE NOT a.attnotnull), '{}'),
	bool_or(t.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = t.oid))
FROM pg_class t
JOIN pg_index i ON i.indrelid = t.oid
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[], i.indoption::int2[]) WITH ORDINALITY AS k(num, coll, opt, place)
JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.num
WHERE t.oid = $1::text::regclass AND m.amname = 'btree' AND i.indisunique AND i.indisvalid
	AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary
HAVING bool_and(k.coll = a.attcollation) AND (bool_and(k.opt = 0) OR bool_and(k.opt = 3))
ORDER BY i.indisprimary DESC, i.indexrelid`

func (s *pgTx) describe(ctx context.Context) (*table, error) {
	t := &table{name: s.q.Table.Sanitize()}
	if t.name == "" {
		return nil, refusal{errors.New("no table")}
	}
	inherited, found, nullable := false, false, []string(nil)
	st := newStatement()
	st.args = []any{t.name}
	st.text.WriteString(indexes)
	err := s.each(ctx, st, func(rows pgx.Rows) error {
		var primary, notNull, parent bool
		var cols, types, null []string
		if err := rows.Scan(&primary, &notNull, &cols, &types, &null, &parent); err != nil {
			return err
		}
		if !notNull && slices.Equal(s.q.Key, cols) {
			nullable = null
		}
		if !found && notNull && (len(s.q.Key) == 0 && primary || slices.Equal(s.q.Key, cols)) {
			found, inherited = true, parent
			t.types = types
			for _, col := range cols {
				t.cols = append(t.cols, pgx.Identifier{col}.Sanitize())
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !found && len(s.q.Key) == 0:
		return nil, refusal{fmt.Errorf("%s has no primary key; name the columns of a unique index in Key", t.name)}
	case !found && nullable != nil:
		column := pgx.Identifier{nullable[0]}.Sanitize()
		return nil, refusal{fmt.Errorf("column %s of the key may be NULL: ALTER TABLE %s ALTER %s SET NOT NULL, or leave Key empty, and the scan goes by the primary key", column, t.name, column)}
	case !found:
		return nil, refusal{fmt.Errorf("%s has no unique index of just the columns %q in this order, all rows, all of them NOT NULL, their collation and direction", t.name, s.q.Key)}
	case inherited:
		return nil, refusal{errors.New(t.name + " has tables that inherit from it, in which its key may come again: name each of them")}
	}
	return t, nil
}

func (t *table) row() string { return tuple(t.cols) }

func (t *table) list() string { return strings.Join(t.cols, ", ") }

func (t *table) behind(prefix string) []string {
	parts := make([]string, len(t.cols))
	for i, col := range t.cols {
		parts[i] = prefix + col
	}
	return parts
}

// text returns the columns as text, to which every type can be converted and back. Only
// PostgreSQL compares keys, because only it knows their order, which for text depends on the
// collation. Each has a name of its own, so ORDER BY refers to the column and not to its text.
func (t *table) text(prefix string) string {
	parts := make([]string, len(t.cols))
	for i, col := range t.cols {
		parts[i] = fmt.Sprintf("%s%s::text AS resqued_text%d", prefix, col, i)
	}
	return strings.Join(parts, ", ")
}

func (t *table) value(st *statement, key []string) string {
	parts := make([]string, len(t.cols))
	for i, typ := range t.types {
		parts[i] = st.arg(key[i]) + "::text::" + typ
	}
	return tuple(parts)
}

func (t *table) among(st *statement, keys [][]string) string {
	unnested, values := t.unnest(st, keys)
	return fmt.Sprintf("%s IN (SELECT %s FROM %s)", t.row(), strings.Join(values, ", "), unnested)
}

// unnest returns a table of keys, resqued_key, whose column place is their number. values are
// the columns of the key.
func (t *table) unnest(st *statement, keys [][]string) (rows string, values []string) {
	arrays, names := make([]string, len(t.cols)), make([]string, len(t.cols))
	for i, typ := range t.types {
		column := make([]string, len(keys))
		for n, key := range keys {
			column[n] = key[i]
		}
		arrays[i], names[i] = st.arg(column)+"::text[]", fmt.Sprintf("c%d", i)
		values = append(values, fmt.Sprintf("resqued_key.c%d::%s", i, typ))
	}
	return fmt.Sprintf("unnest(%s) WITH ORDINALITY AS resqued_key(%s, place)", strings.Join(arrays, ", "), strings.Join(names, ", ")), values
}
