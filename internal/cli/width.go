package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

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
