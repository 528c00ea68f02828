package view

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns how many terminal columns a text takes.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// Cut cuts a text to most columns, the last of them "…".
func Cut(text string, most int) string {
	if Width(text) <= most {
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

// runeWidth returns the columns of a printable character: none for a combining one, two for a wide
// or full-width one. A joined emoji sequence may take less than its sum.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) && r >= 0x300 {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
