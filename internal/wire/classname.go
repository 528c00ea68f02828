package wire

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector"
)

// ClassNames returns the names under which a payload's class may be registered, by precedence: as
// spelled, then as Ruby's Resque resolves it: without a leading "::", and foo-bar as FooBar.
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

// ClassOf returns the class of a job for use in keys, from its name and the registered class. A
// pattern or a wrapper stands for many classes.
func ClassOf(class *resqued.Class, name string) string {
	if slices.Contains(ClassNames(name), class.Name) {
		return class.Name
	}
	return PlainClass(name)
}

// PlainClass returns a class as Ruby's Resque resolves its name.
func PlainClass(name string) string {
	names := ClassNames(name)
	return names[len(names)-1]
}

func spellings(classes []string) (names []string) {
	for _, class := range classes {
		names = append(names, ClassNames(class)...)
	}
	return names
}

// ClassIn reports whether a list has a class, given as Envelope.Names returns it. Names win over
// patterns, earlier names over later ones, long patterns over short ones; an entry with "!"
// excludes.
func ClassIn(list []string, classes ...string) bool {
	if len(list) == 0 {
		return false
	}
	names := spellings(classes)
	for _, name := range names {
		switch {
		case slices.Contains(list, name):
			return true
		case slices.Contains(list, "!"+name):
			return false
		}
	}
	no := map[string]bool{}
	entries := make([]string, len(list))
	for i, entry := range list {
		plain, excluded := strings.CutPrefix(entry, "!")
		entries[i], no[plain] = plain, excluded
	}
	patterns := selector.Patterns(entries)
	for _, pattern := range patterns {
		if slices.ContainsFunc(names, func(name string) bool { return selector.Matches(pattern, name) }) {
			return !no[pattern]
		}
	}
	return false
}

// Performs reports whether a list for selector.MatchAny has a class by one of its spellings and
// excludes none of them. The class is given as Envelope.Names returns it.
func Performs(list []string, classes ...string) bool {
	names := spellings(classes)
	excluded := slices.ContainsFunc(names, func(name string) bool { return selector.Excludes(list, name) })
	return !excluded && slices.ContainsFunc(names, func(name string) bool { return selector.MatchAny(list, name) })
}

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
