package view

import (
	"strings"
	"unicode"
)

// Width returns how many columns of a terminal a text takes.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// Cut cuts a text to so many columns, the last of them "…".
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
