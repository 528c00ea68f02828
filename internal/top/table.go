package top

import (
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/view"
)

// table returns the rows of the pane that there is room for, below the titles of their columns.
func (m *Model) table(width, height int) []string {
	if height < 1 {
		return nil
	}
	p, rows := &m.panes[m.pane], m.rows[m.pane]
	if p.width != width {
		p.natural, p.width = make([]int, len(columns[m.pane])), width
	}
	titles := m.titles()
	if m.page == 0 {
		return []string{m.line(titleCells(titles), layout(columns[m.pane], titles, nil, p.natural, width), width, bold)}
	}
	// The selected row is on the screen, and no room below the last row is wasted.
	p.top = max(0, min(p.top, len(rows)-m.page))
	if p.place < p.top {
		p.top = p.place
	} else if p.place >= p.top+m.page {
		p.top = p.place - m.page + 1
	}
	shown := rows[p.top:min(len(rows), p.top+m.page)]
	widths := layout(columns[m.pane], titles, shown, p.natural, width)
	lines := []string{m.line(titleCells(titles), widths, width, bold)}
	for i, r := range shown {
		style := ""
		if p.top+i == p.place {
			style = reverse
		}
		lines = append(lines, m.line(r.cells, widths, width, style))
	}
	if len(rows) == 0 {
		text := "no " + paneNames[m.pane]
		if m.filter != "" {
			text += " with this text"
		}
		lines = append(lines, m.paint(dim, view.Cut(text, width)))
	}
	return lines
}

// titles returns those of the columns, with a mark at the one by which the rows are sorted.
func (m *Model) titles() []string {
	p, cols := m.panes[m.pane], columns[m.pane]
	titles := make([]string, len(cols))
	for i, c := range cols {
		titles[i] = c.title
		if i == p.sort {
			mark := "▴"
			if c.right != p.back {
				mark = "▾"
			}
			titles[i] += mark
		}
	}
	return titles
}

func titleCells(titles []string) []cell {
	cells := make([]cell, len(titles))
	for i, title := range titles {
		cells[i] = cell{text: title}
	}
	return cells
}

// shownOf returns what stands in a cell.
func shownOf(c cell) string {
	if c.text == "" {
		return "—"
	}
	return c.text
}

// layout returns how wide the columns are, 0 of one for which there is no room. Texts shrink
// first, from the widest; where that is not enough a column is left out. Most has how wide they
// were at most, and is raised.
func layout(cols []column, titles []string, rows []row, most []int, width int) []int {
	for i := range cols {
		most[i] = max(most[i], view.Width(titles[i]))
		for _, r := range rows {
			most[i] = max(most[i], view.Width(shownOf(r.cells[i])))
		}
	}
	natural := slices.Clone(most)
	for {
		widths := slices.Clone(natural)
		if fit(cols, titles, widths, width) {
			return widths
		}
		last := -1
		for i, c := range cols {
			if natural[i] > 0 && c.drop > 0 && (last < 0 || c.drop > cols[last].drop) {
				last = i
			}
		}
		if last < 0 {
			return widths // line cuts what is left
		}
		natural[last] = 0
	}
}

// fit shrinks the columns of texts until all have room, and reports whether they have.
func fit(cols []column, titles []string, widths []int, width int) bool {
	total := -len(gap)
	for _, w := range widths {
		if w > 0 {
			total += w + len(gap)
		}
	}
	for ; total > width; total-- {
		widest := -1
		for i, c := range cols {
			if !c.right && widths[i] > max(c.least, view.Width(titles[i])) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// line writes cells in columns, on width columns of the terminal at most.
func (m *Model) line(cells []cell, widths []int, width int, style string) string {
	var b strings.Builder
	used := 0
	for i, w := range widths {
		if w == 0 {
			continue
		}
		if used > 0 {
			if used+len(gap) >= width {
				break
			}
			b.WriteString(gap)
			used += len(gap)
		}
		w = min(w, width-used)
		text := view.Cut(shownOf(cells[i]), w)
		pad := strings.Repeat(" ", max(0, w-view.Width(text)))
		colour := cells[i].colour
		if style != "" {
			colour = ""
		}
		if text = m.paint(colour, text); columns[m.pane][i].right {
			text = pad + text
		} else {
			text += pad
		}
		b.WriteString(text)
		used += w
	}
	if style == reverse { // as wide as the screen
		b.WriteString(strings.Repeat(" ", max(0, width-used)))
		return m.paint(style, b.String())
	}
	return m.paint(style, strings.TrimRight(b.String(), " "))
}
