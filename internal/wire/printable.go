package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes untrusted text safe for a log line or a terminal. Characters that are not printable
// (controls, line breaks, bidirectional marks, invalid UTF-8) are escaped. The result has at most
// max bytes (0 = all) and ends with an ellipsis if it was cut.
func Printable(s string, max int) string {
	if (max <= 0 || len(s) <= max) && plain(s) {
		return s
	}
	const ellipsis = "…"
	var b strings.Builder
	fits := 0 // the length up to which an ellipsis still fits
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		piece := s[i : i+size]
		switch {
		case r == utf8.RuneError && size == 1:
			piece = fmt.Sprintf(`\x%02x`, s[i])
		case !unicode.IsPrint(r):
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if max > 0 && b.Len()+len(piece) > max {
			if max < len(ellipsis) {
				return b.String()[:fits]
			}
			return b.String()[:fits] + ellipsis
		}
		b.WriteString(piece)
		if b.Len() <= max-len(ellipsis) {
			fits = b.Len()
		}
		i += size
	}
	return b.String()
}

func plain(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// PrintableLines is Printable for several lines: line breaks and tabs stay.
func PrintableLines(s string, max int) string {
	if (max <= 0 || len(s) <= max) && plain(s) {
		return s
	}
	var b strings.Builder
	s = strings.ReplaceAll(s, "\r\n", "\n")
	for {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			i = len(s)
		}
		left := 0
		if max > 0 {
			if left = max - b.Len(); left <= 0 {
				return b.String()
			}
		}
		piece := Printable(s[:i], left)
		b.WriteString(piece)
		if i == len(s) || max > 0 && b.Len() >= max {
			return b.String()
		}
		b.WriteByte(s[i])
		s = s[i+1:]
	}
}
