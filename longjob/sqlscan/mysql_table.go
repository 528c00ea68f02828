package sqlscan

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// myTable describes a table for the statements.
type myTable struct {
	index string // of the key, quoted
	cols  []myColumn
	// utc means that the key contains a timestamp, whose text is not unique in a time zone with
	// daylight saving time.
	utc bool
}

// myColumn is a column of the key. Keys are kept as text and compared only by the server, which
// alone knows their order.
type myColumn struct {
	name string // quoted
	read string // the column as text
	// value converts that text back, %s being the argument. number converts the text to the
	// argument.
	value  string
	number func(text string) (any, error)
	date   bool
}

// know also sets the time zone if the key needs that.
func (t *myTx) know(ctx context.Context) (err error) {
	if t.t == nil {
		if t.t, err = t.describe(ctx); err != nil {
			return err
		}
	}
	if t.t.utc && !slices.ContainsFunc(t.restore, func(v string) bool { return strings.HasPrefix(v, "SESSION time_zone") }) {
		return t.set(ctx, [][2]string{{"time_zone", "'+00:00'"}})
	}
	return nil
}

func (t *myTx) describe(ctx context.Context) (*myTable, error) {
	if t.q.Table == "" {
		return nil, refusal{errors.New("no table")}
	}
	schema := sql.NullString{String: t.q.Database, Valid: t.q.Database != ""}
	st := newMyStatement()
	st.add("SELECT COALESCE(ENGINE, ''), TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s", st.arg(schema), st.arg(t.q.Table))
	engine, kind := "", ""
	if err := t.each(ctx, st, func(rows *sql.Rows) error { return rows.Scan(&engine, &kind) }); err != nil {
		return nil, err
	}
	switch {
	case kind == "":
		return nil, refusal{errors.New(t.table() + " does not exist, or the user may not see it")}
	case kind == "VIEW" || kind == "SYSTEM VIEW":
		return nil, refusal{errors.New(t.table() + " is a view")}
	case !strings.EqualFold(engine, "InnoDB"):
		return nil, refusal{fmt.Errorf("%s is a table of %s, which has no transactions that lock rows: it must be one of InnoDB", t.table(), engine)}
	}
	st = newMyStatement()
	st.add(`SELECT s.INDEX_NAME, COALESCE(s.COLUMN_NAME, ''), COALESCE(s.COLLATION, ''), s.SUB_PART IS NOT NULL, s.NULLABLE = 'YES', s.INDEX_TYPE,
		COALESCE(c.DATA_TYPE, ''), COALESCE(c.COLUMN_TYPE, ''), COALESCE(c.NUMERIC_PRECISION, 0), COALESCE(c.NUMERIC_SCALE, 0), COALESCE(c.CHARACTER_SET_NAME, ''), COALESCE(c.COLLATION_NAME, ''),
		c.EXTRA LIKE '%%VIRTUAL GENERATED%%' OR c.EXTRA LIKE '%%STORED GENERATED%%'
		FROM information_schema.STATISTICS s LEFT JOIN information_schema.COLUMNS c
			ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME AND c.COLUMN_NAME = s.COLUMN_NAME
		WHERE s.TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND s.TABLE_NAME = %s AND s.NON_UNIQUE = 0 AND %s
		ORDER BY s.INDEX_NAME = 'PRIMARY' DESC, s.INDEX_NAME, s.SEQ_IN_INDEX`, st.arg(schema), st.arg(t.q.Table), t.flavour.usable)
	indexes, err := t.indexes(ctx, st)
	if err != nil {
		return nil, err
	}
	for _, ix := range indexes {
		if len(t.q.Key) == 0 && ix.name != "PRIMARY" || len(t.q.Key) > 0 && !slices.EqualFunc(t.q.Key, ix.columns, strings.EqualFold) {
			continue
		}
		if ix.flaw == "" {
			return &myTable{index: quoted(ix.name), cols: ix.cols, utc: ix.utc}, nil
		}
		err = fmt.Errorf("index %s of %s cannot be the key: %s", quoted(ix.name), t.table(), ix.flaw)
	}
	switch {
	case err != nil:
		return nil, refusal{err}
	case len(t.q.Key) == 0:
		return nil, refusal{fmt.Errorf("%s has no primary key; name the columns of a unique index in Key", t.table())}
	}
	return nil, refusal{fmt.Errorf("%s has no unique index of just the columns %q in this order", t.table(), t.q.Key)}
}

type myIndex struct {
	name    string
	columns []string
	cols    []myColumn
	utc     bool
	order   string
	flaw    string // why it cannot be the key
}

func (t *myTx) indexes(ctx context.Context, st *statement) (all []*myIndex, err error) {
	err = t.each(ctx, st, func(rows *sql.Rows) error {
		var name, column, order, kind, typ, full, charset, collation string
		var part, nullable bool
		var generated sql.NullBool
		var precision, scale int
		if err := rows.Scan(&name, &column, &order, &part, &nullable, &kind, &typ, &full, &precision, &scale, &charset, &collation, &generated); err != nil {
			return err
		}
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, &myIndex{name: name, order: order})
		}
		ix := all[len(all)-1]
		col, ok := columnOf(typ, full, precision, scale, charset, collation)
		col.name = quoted(column)
		col.read = fmt.Sprintf(col.read, col.name)
		ix.columns, ix.cols = append(ix.columns, column), append(ix.cols, col)
		ix.utc = ix.utc || typ == "timestamp"
		switch {
		case column == "":
			ix.flaw = "it has an expression"
		case kind != "BTREE":
			ix.flaw = "it is one of type " + kind
		case nullable && generated.Bool:
			ix.flaw = "column " + col.name + " may be NULL, as any that MariaDB generates; in MySQL declare it NOT NULL, or leave Key empty, and the scan goes by the primary key"
		case nullable:
			ix.flaw = "column " + col.name + " may be NULL: declare it NOT NULL, or leave Key empty, and the scan goes by the primary key"
		case part:
			ix.flaw = "it has the beginning of column " + col.name + " only"
		case order != ix.order:
			ix.flaw = "its columns differ in their direction"
		case !ok:
			ix.flaw = "column " + col.name + " is of type " + typ + ", whose values are not exact as text"
		}
		return nil
	})
	return all, err
}

// columnOf returns how a type is converted to text and back. ok is false if it cannot be.
func columnOf(typ, full string, precision, scale int, charset, collation string) (c myColumn, ok bool) {
	c.read, c.value = "CAST(%s AS CHAR)", "%s"
	c.number = func(text string) (any, error) { return text, nil }
	switch typ {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year":
		c.number = func(text string) (any, error) { return strconv.ParseInt(text, 10, 64) }
		if strings.Contains(full, "unsigned") {
			c.number = func(text string) (any, error) { return strconv.ParseUint(text, 10, 64) }
		}
	case "bit", "enum", "set": // ordered by their numbers
		c.read = "CAST(%s + 0 AS CHAR)"
		c.number = func(text string) (any, error) { return strconv.ParseUint(text, 10, 64) }
	case "decimal":
		c.value = fmt.Sprintf("CAST(%%s AS DECIMAL(%d,%d))", precision, scale)
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		// Bytes, whatever the connection's character set is.
		c.read, c.value = "HEX(%s)", "CONVERT(UNHEX(%s) USING "+charset+") COLLATE "+collation
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.read, c.value = "HEX(%s)", "UNHEX(%s)"
	case "date":
		c.value, c.date = "CAST(%s AS DATE)", true
	case "datetime", "timestamp":
		c.value, c.date = "CAST(%s AS DATETIME(6))", true
	case "time":
		c.value = "CAST(%s AS TIME(6))"
	case "uuid", "inet6", "inet4":
		c.value = "CAST(%s AS " + strings.ToUpper(typ) + ")"
	default: // including float and double
		return c, false
	}
	return c, true
}

// check refuses dates that the server would not read back: comparisons with them would be NULL,
// and rows would be skipped.
func (t *myTable) check(key []string) error {
	for i, col := range t.cols {
		if col.date && (strings.HasPrefix(key[i], "0000") || strings.Contains(key[i][:min(10, len(key[i]))], "-00")) {
			return refusal{fmt.Errorf("column %s of the key has %q, which is not a date", col.name, key[i])}
		}
	}
	return nil
}

func (c myColumn) arg(st *statement, text string) string {
	v, err := c.number(text)
	if err != nil {
		v = text // the server reports what is wrong with it
	}
	return fmt.Sprintf(c.value, st.arg(v))
}

// text returns the columns of the key as text. Each has a name of its own, so ORDER BY refers
// to the column and not to its text.
func (t *myTable) text() string {
	parts := make([]string, len(t.cols))
	for i, col := range t.cols {
		parts[i] = fmt.Sprintf("%s AS resqued_text%d", col.read, i)
	}
	return strings.Join(parts, ", ")
}

func (t *myTable) order(direction string) string {
	parts := make([]string, len(t.cols))
	for i, col := range t.cols {
		parts[i] = col.name + direction
	}
	return strings.Join(parts, ", ")
}

// beside returns the condition that a row is above or below a key. The servers use no index for
// a comparison of tuples, so it is written in full.
func (t *myTable) beside(st *statement, key []string, strict, last string) string {
	c := t.cols[0]
	if len(t.cols) == 1 {
		return c.name + " " + last + " " + c.arg(st, key[0])
	}
	var text strings.Builder
	text.WriteString(c.name + " " + strict + "= " + c.arg(st, key[0]) + " AND (")
	for i, c := range t.cols {
		if i == len(t.cols)-1 {
			text.WriteString(c.name + " " + last + " " + c.arg(st, key[i]))
			break
		}
		text.WriteString(c.name + " " + strict + " " + c.arg(st, key[i]))
		text.WriteString(" OR " + c.name + " = " + c.arg(st, key[i]) + " AND (")
	}
	return text.String() + strings.Repeat(")", len(t.cols))
}

func (t *myTable) among(st *statement, keys [][]string) string {
	parts := make([]string, len(keys))
	if len(t.cols) == 1 {
		for i, key := range keys {
			parts[i] = t.cols[0].arg(st, key[0])
		}
		return t.cols[0].name + " IN (" + strings.Join(parts, ", ") + ")"
	}
	for i, key := range keys {
		equal := make([]string, len(t.cols))
		for n, col := range t.cols {
			equal[n] = col.name + " = " + col.arg(st, key[n])
		}
		parts[i] = strings.Join(equal, " AND ")
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}
