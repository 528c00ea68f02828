package cli

import (
	"fmt"
	"io"
	"os"
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
	// colour returns the colour of a value, or ""; may be nil.
	colour func(value string) string
}

// listing is a result for every form of -o. rows, names and items are parallel.
type listing struct {
	columns []column
	rows    [][]string
	names   []string
	items   []any
	// next continues a list that was limited; partial says that not everything was read.
	next    string
	partial bool
}

func (l *listing) add(name string, item any, row ...string) {
	l.names = append(l.names, name)
	l.items = append(l.items, item)
	l.rows = append(l.rows, row)
}

func (l *listing) merge(store string, from *listing) {
	l.columns = append([]column{{title: "STORE"}}, from.columns...)
	for _, row := range from.rows {
		l.rows = append(l.rows, append([]string{store}, row...))
	}
	l.items, l.partial = append(l.items, from.items...), l.partial || from.partial
}

func (a *cli) print(l *listing) error {
	switch a.flags.output {
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
		return a.printJSON(body)
	case outName:
		var b strings.Builder
		for _, name := range l.names {
			b.WriteString(wire.Printable(name, 0) + "\n")
		}
		return a.printText(b.String())
	}
	return a.printText(a.table(l))
}

// printJSON writes a value as a line of JSON, or with -o yaml as YAML.
func (a *cli) printJSON(v any) error {
	encode := encodeJSON
	if a.flags.yaml {
		encode = encodeYAML
	}
	text, err := encode(v)
	if err != nil {
		return err
	}
	return a.printText(string(text))
}

// printText writes to standard output. A reader that has gone, as head does, is not an error.
func (a *cli) printText(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil && !isBrokenPipe(err) {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// table lays a listing out in columns. The widest are cut to fit the terminal.
func (a *cli) table(l *listing) string {
	var shown []int
	for i, c := range l.columns {
		if !c.wide || a.flags.output == outWide {
			shown = append(shown, i)
		}
	}
	limit := maxCell
	if a.flags.output == outWide {
		limit = 0
	}
	width := make([]int, len(l.columns))
	cells := make([][]string, 0, len(l.rows)+1)
	if !a.flags.noHeaders && len(l.rows) > 0 {
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
	if a.flags.output != outWide {
		room = a.width
		shrink(l.columns, shown, width, room)
	}
	var b strings.Builder
	for n, row := range cells {
		heading := n == 0 && len(cells) > len(l.rows)
		a.writeRow(&b, l.columns, shown, width, room, row, heading)
	}
	return b.String()
}

// writeRow writes a line of a table of at most room columns; 0 = any width.
func (a *cli) writeRow(b *strings.Builder, columns []column, shown, width []int, room int, row []string, heading bool) {
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
			text = a.paint(c(row[i]), text)
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

func (a *cli) paint(colour, text string) string {
	if colour == "" || !a.coloured {
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

// escapeControls writes unprintable characters as \u…. In JSON, only strings contain such
// characters, except for the final line break.
func escapeControls(text string) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func plural(n int, what string) string { return view.Plural(n, what) }
