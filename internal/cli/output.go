package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// maxCell limits a table's cell in bytes; -o wide shows all of it.
const maxCell = view.MaxName

const (
	outTable = "table"
	outWide  = "wide"
	outJSON  = "json"
	outYAML  = "yaml"
	outName  = "name"
)

const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// output is where a verb's results and remarks go, and in which form.
type output struct {
	// name is the program's, for messages.
	name           string
	stdout, stderr io.Writer
	flags          outputFlags
	coloured       bool
	// width is the number of columns for a table: the terminal's, or 0 for any.
	width int
	// listed is the store being read, if a list has those of several stores.
	listed string
}

type outputFlags struct {
	output    string
	yaml      bool
	noHeaders bool
	noColour  bool
	quiet     bool
	verbose   bool
}

// forPeople reports whether the output is a table or text rather than for programs.
func (out *output) forPeople() bool {
	return out.flags.output != outJSON && out.flags.output != outName
}

// note prints a remark to standard error, unless -q is set.
func (out *output) note(format string, args ...any) {
	if !out.flags.quiet {
		if out.listed != "" {
			format = "store " + out.listed + ": " + format
		}
		_, _ = fmt.Fprintf(out.stderr, format+"\n", args...)
	}
}

// warn prints a warning to standard error, unless -q is set.
func (out *output) warn(format string, args ...any) {
	if !out.flags.quiet {
		_, _ = fmt.Fprintf(out.stderr, "%s: warning: %s\n", out.name, wire.Printable(fmt.Sprintf(format, args...), 0))
	}
}

// tell prints what a verb has done: lines for people, unless -q is set, or the list for programs.
func (out *output) tell(l *listing) error {
	switch {
	case !out.forPeople():
		return out.print(l)
	case out.flags.quiet:
		return nil
	}
	return out.printText(l.lines.String())
}

// result prints a verb's only result: as an object, by its name or, unless -q is set, as text.
func (out *output) result(v any, name, text string) error {
	switch {
	case out.flags.output == outJSON:
		return out.printJSON(v)
	case out.flags.output == outName:
		text = name
	case out.flags.quiet:
		return nil
	}
	return out.printText(text)
}

// showEach prints things in full: a text of each for people, or the list for programs.
func showEach[T any](out *output, l *listing, all []T, text func(T) string) error {
	if !out.forPeople() {
		return out.print(l)
	}
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = text(v)
	}
	return out.printText(strings.Join(texts, "\n"))
}

// details is a text of names and values, one a line, with the values in a column.
type details struct {
	strings.Builder
	at int
}

// line adds a value, unless it is empty.
func (d *details) line(name, value string) {
	if value != "" {
		d.painted(name, wire.Printable(value, 0))
	}
}

// painted adds a value that is safe for a terminal.
func (d *details) painted(name, value string) {
	d.WriteString(name + strings.Repeat(" ", d.at-len(name)) + value + "\n")
}

type column struct {
	title string
	right bool
	// wide columns are shown with -o wide only.
	wide bool
	// whole values are never cut.
	whole bool
	// least is the column's minimum width, if above the default.
	least int
	// fixed columns do not shrink to fit the terminal.
	fixed bool
	// colour has the colours of values; may be nil.
	colour colours
}

// colours are the colours of values; other is for those that are not in it.
type colours map[string]string

const other = "*"

func (c colours) of(value string) string {
	if colour, ok := c[value]; ok {
		return colour
	}
	return c[other]
}

// listing is a result for every form of -o. rows, names and items are parallel. A listing of changes
// has lines instead of rows.
type listing struct {
	columns []column
	rows    [][]string
	names   []string
	items   []any
	lines   strings.Builder
	// next continues a list that was limited; partial says that not everything was read.
	next    string
	partial bool
}

func (l *listing) add(name string, item any, row ...string) {
	l.names = append(l.names, name)
	l.items = append(l.items, item)
	l.rows = append(l.rows, row)
}

// newListing returns a table with the columns of a header: titles with commas between them. Before
// a title, > aligns its column right, + shows it with -o wide only, and = keeps it from shrinking.
func newListing(header string) *listing {
	l := &listing{}
	for title := range strings.SplitSeq(header, ", ") {
		name := strings.TrimLeft(title, ">+=")
		marks := title[:len(title)-len(name)]
		l.columns = append(l.columns, column{
			title: name, right: strings.Contains(marks, ">"), wide: strings.Contains(marks, "+"), fixed: strings.Contains(marks, "="),
		})
	}
	return l
}

// paints colours the values of a column; see column.colour.
func (l *listing) paints(title string, colour colours) *listing {
	i := slices.IndexFunc(l.columns, func(c column) bool { return c.title == title })
	l.columns[i].colour = colour
	return l
}

// did adds something that a verb has done, or would do. A refusal has no name.
func (l *listing) did(name string, item any, format string, args ...any) {
	l.names, l.items = append(l.names, name), append(l.items, item)
	fmt.Fprintf(&l.lines, format+"\n", args...)
}

func (l *listing) merge(store string, from *listing) {
	l.columns = append([]column{{title: "STORE"}}, from.columns...)
	for _, row := range from.rows {
		l.rows = append(l.rows, append([]string{store}, row...))
	}
	l.items, l.partial = append(l.items, from.items...), l.partial || from.partial
}

func (out *output) print(l *listing) error {
	switch out.flags.output {
	case outJSON:
		body := struct {
			Items   []any   `json:"items"`
			Next    *string `json:"next"`
			Partial bool    `json:"partial"`
		}{Items: l.items, Partial: l.partial}
		if body.Items == nil {
			body.Items = []any{}
		}
		if l.next != "" {
			body.Next = &l.next
		}
		return out.printJSON(body)
	case outName:
		var b strings.Builder
		for _, name := range l.names {
			b.WriteString(wire.Printable(name, 0) + "\n")
		}
		return out.printText(b.String())
	}
	return out.printText(out.table(l))
}

// printOr prints a list. If it is empty, people get a note.
func (out *output) printOr(l *listing, empty string, args ...any) error {
	if len(l.rows) == 0 && out.forPeople() {
		out.note(empty, args...)
	}
	return out.print(l)
}

// printJSON writes a value as a line of JSON, or with -o yaml as YAML.
func (out *output) printJSON(v any) error {
	encode := encodeJSON
	if out.flags.yaml {
		encode = encodeYAML
	}
	text, err := encode(v)
	if err != nil {
		return err
	}
	return out.printText(string(text))
}

// printText writes to standard output. A reader that has gone, as head does, is not an error.
func (out *output) printText(text string) error {
	if _, err := io.WriteString(out.stdout, text); err != nil && !isBrokenPipe(err) {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// table lays a listing out in columns. The widest are cut to fit the terminal.
func (out *output) table(l *listing) string {
	var shown []int
	for i, c := range l.columns {
		if !c.wide || out.flags.output == outWide {
			shown = append(shown, i)
		}
	}
	limit := maxCell
	if out.flags.output == outWide {
		limit = 0
	}
	width := make([]int, len(l.columns))
	cells := make([][]string, 0, len(l.rows)+1)
	if !out.flags.noHeaders && len(l.rows) > 0 {
		head := make([]string, len(l.columns))
		for i, c := range l.columns {
			head[i] = c.title
		}
		cells = append(cells, head)
	}
	for _, row := range l.rows {
		clean := make([]string, len(l.columns))
		for i := range l.columns {
			most := limit
			if l.columns[i].whole {
				most = 0
			}
			if clean[i] = wire.Printable(row[i], most); clean[i] == "" {
				clean[i] = "—"
			}
		}
		cells = append(cells, clean)
	}
	for _, row := range cells {
		for _, i := range shown {
			width[i] = max(width[i], view.Width(row[i]))
		}
	}
	room := 0 // any
	if out.flags.output != outWide {
		room = out.width
		shrink(l.columns, shown, width, room)
	}
	var b strings.Builder
	for n, row := range cells {
		heading := n == 0 && len(cells) > len(l.rows)
		out.writeRow(&b, l.columns, shown, width, room, row, heading)
	}
	return b.String()
}

// writeRow writes a line of a table of at most room columns; 0 = any width.
func (out *output) writeRow(b *strings.Builder, columns []column, shown, width []int, room int, row []string, heading bool) {
	var line strings.Builder
	used := 0
	for k, i := range shown {
		most := width[i]
		if room > 0 {
			most = min(most, room-used) // even columns that do not shrink end with the terminal
		}
		if most <= 0 {
			break
		}
		text := view.Cut(row[i], most)
		pad := strings.Repeat(" ", max(0, most-view.Width(text)))
		if c := columns[i].colour; c != nil && !heading {
			text = out.paint(c.of(row[i]), text)
		}
		if columns[i].right {
			line.WriteString(pad + text)
		} else {
			line.WriteString(text + pad)
		}
		if used += most + columnGap; k < len(shown)-1 {
			line.WriteString(strings.Repeat(" ", columnGap))
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

func (out *output) paint(colour, text string) string {
	if colour == "" || !out.coloured {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func wantsColour(f io.Writer, noColour bool) bool {
	return !noColour && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

func isTerminal(f io.Writer) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// escapeControls writes unprintable characters as escapes: \u…, and in YAML \U…. In JSON, only
// strings contain such characters, except for the final line break.
func escapeControls(text string, yaml bool) []byte {
	escaped := make([]byte, 0, len(text))
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			escaped = utf8.AppendRune(escaped, r)
		case r <= 0xFFFF && yaml:
			escaped = fmt.Appendf(escaped, `\u%04X`, r)
		case r <= 0xFFFF:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		case yaml:
			escaped = fmt.Appendf(escaped, `\U%08X`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, hi, lo)
		}
	}
	return escaped
}

func plural(n int, what string) string { return view.Plural(n, what) }

const (
	columnGap = 2
	// minColumn is the minimum width of a column, minName that of the first, which names the row.
	minColumn, minName = 6, 12
)

// terminalSize returns the size of f's terminal, 0 and 0 without one.
func terminalSize(f io.Writer) (columns, rows int) {
	file, ok := f.(*os.File)
	if !ok {
		return 0, 0
	}
	columns, rows, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

// shrink reduces column widths until a table fits into room, 0 = any width: the widest first, and
// the row's name only when no other column can give. Numbers and states are never cut.
func shrink(columns []column, shown, width []int, room int) {
	if room <= 0 || len(shown) == 0 {
		return
	}
	total := columnGap * (len(shown) - 1)
	for _, i := range shown {
		total += width[i]
	}
	for _, pass := range [][]int{shown[1:], shown[:1]} {
		for total > room {
			widest := -1
			for _, i := range pass {
				c := columns[i]
				if c.right || c.whole || c.fixed || c.colour != nil || width[i] <= least(c, i == shown[0]) {
					continue
				}
				if widest < 0 || width[i] > width[widest] {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			width[widest]--
			total--
		}
	}
}

func least(c column, first bool) int {
	if first {
		return max(minName, len(c.title), c.least)
	}
	return max(minColumn, len(c.title), c.least)
}
