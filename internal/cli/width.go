package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

const (
	// columnGap stands between two columns of a table.
	columnGap = 2
	// minColumn is to how little a column shrinks, minName the first one, which names the row.
	minColumn, minName = 6, 12
)

// terminalSize returns the size of the terminal that f is, 0 and 0 if it is none.
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

// shrink takes from the widths of columns what makes a table too wide for room, 0 for any: from
// the widest first, and from the one that names the row when no other has anything to give.
// Numbers and states are never cut.
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
			// The widest column gives until it is as wide as the next, or as small as it gets.
			widest, next := -1, 0
			for k, i := range pass {
				c := columns[i]
				if c.right || c.whole || c.fixed || c.colour != nil || width[i] <= least(c, pass[k] == shown[0]) {
					continue
				}
				switch {
				case widest < 0 || width[i] > width[widest]:
					if widest >= 0 {
						next = width[widest]
					}
					widest = i
				case width[i] > next:
					next = width[i]
				}
			}
			if widest < 0 {
				break
			}
			to := max(least(columns[widest], widest == shown[0]), min(next, width[widest]-1), width[widest]-(total-room))
			total -= width[widest] - to
			width[widest] = to
		}
	}
}

// least returns to how little a column shrinks.
func least(c column, first bool) int {
	if first {
		return max(minName, len(c.title), c.least)
	}
	return max(minColumn, len(c.title), c.least)
}
