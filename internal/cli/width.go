package cli

import (
	"io"
	"os"
	"strings"
	"unicode"

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

// displayWidth returns how many columns of a terminal a text takes.
func displayWidth(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// cutToWidth cuts a text to so many columns, the last of them "…".
func cutToWidth(text string, most int) string {
	if displayWidth(text) <= most {
		return text
	}
	var b strings.Builder
	left := most - 1
	for _, r := range text {
		if left -= runeWidth(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// runeWidth returns how many columns a printable character takes: none if it is drawn over the
// one before it, two if it is wide by Unicode's rules for East Asian scripts and emoji. That is
// the rule without its exceptions: sequences of emoji may take less.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	for _, wide := range [...][2]rune{
		{0x1100, 0x115F},
		{0x231A, 0x231B},
		{0x23E9, 0x23EC},
		{0x2E80, 0x303E},
		{0x3041, 0xA4CF},
		{0xA960, 0xA97F},
		{0xAC00, 0xD7A3},
		{0xF900, 0xFAFF},
		{0xFE30, 0xFE6F},
		{0xFF00, 0xFF60},
		{0xFFE0, 0xFFE6},
		{0x17000, 0x18DFF},
		{0x1B000, 0x1B2FF},
		{0x1F004, 0x1F004},
		{0x1F0CF, 0x1F0CF},
		{0x1F18E, 0x1F19A},
		{0x1F200, 0x1F64F},
		{0x1F680, 0x1F6FF},
		{0x1F7E0, 0x1F7EB},
		{0x1F900, 0x1FAFF},
		{0x20000, 0x3FFFD},
	} {
		if r >= wide[0] && r <= wide[1] {
			return 2
		}
	}
	return 1
}
