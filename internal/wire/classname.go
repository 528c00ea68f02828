package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ClassNames returns the names under which a payload's class may be registered, the
// one that counts most first: as it is spelled, then as Ruby's Resque resolves it,
// without a leading "::", and foo-bar as FooBar.
func ClassNames(class string) []string {
	names := []string{class}
	if plain, global := strings.CutPrefix(class, "::"); global {
		names = append(names, plain)
	}
	if strings.Contains(class, "-") {
		names = append(names, strings.TrimPrefix(camelize(class), "::"))
	}
	return names
}

// camelize turns foo-bar into FooBar.
func camelize(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		first, size := utf8.DecodeRuneInString(part)
		if size > 0 {
			b.WriteRune(unicode.ToUpper(first))
			b.WriteString(part[size:])
		}
	}
	return b.String()
}
