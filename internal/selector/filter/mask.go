package filter

import (
	"strings"
	"unicode/utf8"
)

// Replacements for the parts of a message that differ between jobs.
const (
	maskNumber = "#"
	maskID     = "<id>"
	maskQuoted = "…"
)

const (
	// maxMasked bounds a masked message, in bytes.
	maxMasked = 300
	// minHexID and minMixedID are the minimum lengths of ids of hexadecimal digits, and of letters
	// and digits. Shorter ones are words such as "utf8" and "face2".
	minHexID, minMixedID = 8, 16
)

// Mask replaces what differs between failures of a kind: numbers by #, UUIDs and other random ids
// by <id>, text in quotes by …. Times, addresses and decimals are one number each. It keeps the
// first 300 bytes of Summary.
func Mask(message string) string {
	s := strings.ToValidUTF8(Summary(message), "�")
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < maxMasked; {
		if n := quotedLen(s, i); n > 0 {
			b.WriteString(s[i:i+1] + maskQuoted + s[i:i+1])
			i += n
			continue
		}
		if n := uuidLen(s[i:]); n > 0 && (i == 0 || !isWord(s[i-1])) {
			b.WriteString(maskID)
			i += n
			continue
		}
		if !isWord(s[i]) {
			b.WriteByte(s[i])
			i++
			continue
		}
		end := i
		for end < len(s) && isWord(s[end]) {
			end++
		}
		if isID(s[i:end]) {
			b.WriteString(maskID)
			i = end
			continue
		}
		i = maskWord(&b, s, i, end)
	}
	if b.Len() < maxMasked {
		return b.String()
	}
	return strings.ToValidUTF8(b.String()[:maxMasked], "") + "…"
}

// maskWord writes the word s[i:end] with # for each number, and returns where it ends. A number
// extends beyond the word over points, commas or colons followed by digits.
func maskWord(b *strings.Builder, s string, i, end int) int {
	for i < end {
		if !isDigit(s[i]) {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(maskNumber)
		for i < len(s) && (isDigit(s[i]) || strings.IndexByte(".,:", s[i]) >= 0 && i+1 < len(s) && isDigit(s[i+1])) {
			i++
		}
	}
	return i
}

// quotedLen returns the length of the quoted text at i, or 0. Apostrophes in words don't count.
func quotedLen(s string, i int) int {
	quote := s[i]
	if quote != '"' && quote != '\'' && quote != '`' || i > 0 && joins(s[i-1]) {
		return 0
	}
	for end := i + 1; end < len(s); end++ {
		switch {
		case s[end] == '\\' && quote == '"':
			end++
		case s[end] == quote && (end+1 == len(s) || !joins(s[end+1])):
			return end + 1 - i
		}
	}
	return 0
}

// joins reports whether a quote next to c belongs to a word.
func joins(c byte) bool { return isWord(c) || c == maskNumber[0] || c == '<' || c == '>' }

// uuidLen returns 36 if s begins with a UUID that ends there, else 0.
func uuidLen(s string) int {
	const length = 36
	if len(s) < length || len(s) > length && isWord(s[length]) {
		return 0
	}
	for i := range length {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !isHex(s[i]) {
			return 0
		}
	}
	return length
}

// isID reports whether a word is a random id.
func isID(word string) bool {
	if hex, ok := strings.CutPrefix(word, "0x"); ok && hex != "" && allHex(hex) {
		return true
	}
	digits := 0
	for i := range len(word) {
		if isDigit(word[i]) {
			digits++
		}
	}
	switch {
	case digits == 0 || digits == len(word):
		return false
	case len(word) >= minHexID && allHex(word):
		return true
	}
	return len(word) >= minMixedID && digits >= 3 && !strings.Contains(word, "_")
}

func allHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// isWord reports whether c is part of a word, as is every byte of a non-ASCII character.
func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
}

// Summary returns an error's first line and, if that ends in a colon as for commands, its last.
func Summary(s string) string {
	s = strings.TrimSpace(s)
	first, rest, _ := strings.Cut(s, "\n")
	if !strings.HasSuffix(first, ":") || rest == "" {
		return first
	}
	return first + " " + strings.TrimSpace(rest[strings.LastIndexByte(rest, '\n')+1:])
}
