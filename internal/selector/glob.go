package selector

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// globChars make a glob of a name. As in File.fnmatch without flags, "]" alone and braces are
// literal, and a backslash only escapes inside a glob.
const globChars = "*?["

// MatchAny reports whether at least one name or glob of a list covers a queue and no "!" exclusion
// does. An empty list covers nothing. CheckSet validates such a list.
func MatchAny(patterns []string, queue string) bool {
	matched := false
	for _, text := range patterns {
		if not, ok := strings.CutPrefix(text, "!"); ok {
			if matchEntry(not, queue) {
				return false
			}
			continue
		}
		matched = matched || matchEntry(text, queue)
	}
	return matched
}

// IsPattern reports whether a text is a glob rather than a plain name.
func IsPattern(text string) bool { return strings.ContainsAny(text, globChars) }

// Excludes reports whether an exclusion of a MatchAny list covers a name.
func Excludes(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(text string) bool {
		not, excluded := strings.CutPrefix(text, "!")
		return excluded && matchEntry(not, name)
	})
}

// Patterns returns the globs among names, the longest first: it is the most specific.
func Patterns(names []string) []string {
	var globs []string
	for _, name := range names {
		if IsPattern(name) {
			globs = append(globs, name)
		}
	}
	slices.SortFunc(globs, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return globs
}

// Choose returns what decides about a name: itself, else the first of Patterns that covers it, or
// "".
func Choose(names []string, name string) string {
	if slices.Contains(names, name) {
		return name
	}
	for _, glob := range Patterns(names) {
		if Matches(glob, name) {
			return glob
		}
	}
	return ""
}

func matchEntry(text, queue string) bool {
	if IsPattern(text) {
		return Matches(text, queue)
	}
	return text == queue
}

// Matches matches a whole name as Ruby's File.fnmatch does without flags: "*", "?", "[a-z]",
// "[!a-z]" or "[^a-z]", and "\" as escape; "/" is an ordinary character. Unlike in Ruby a leading
// dot is ordinary too, because "*" means every queue here.
//
// On a mismatch only the last star is lengthened, so the cost is at most the product of both
// lengths.
func Matches(pattern, name string) bool {
	if pattern == "*" {
		return true
	}
	p, n := 0, 0
	star, mark := -1, 0 // the last star, and where the text after it is tried
	for n < len(name) {
		if p < len(pattern) {
			switch c := pattern[p]; c {
			case '*':
				star, mark = p, n
				p++
				continue
			case '?', '[', '\\':
				if width, used := one(pattern[p:], name[n:]); used > 0 {
					p += width
					n += used
					continue
				}
			default:
				if c == name[n] { // comparing bytes is enough for literal text
					p++
					n++
					continue
				}
			}
		}
		if star < 0 {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[mark:])
		mark += size
		p, n = star+1, mark
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one matches the "?", set or escape at the start of a pattern against the first character of a
// name. width is its length in the pattern; used is 0 if it does not match.
func one(pattern, name string) (width, used int) {
	char, size := utf8.DecodeRuneInString(name)
	switch pattern[0] {
	case '?':
		return 1, size
	case '[':
		set, width, err := parseSet(pattern)
		if err != nil || !set.has(char) {
			return 0, 0
		}
		return width, size
	}
	want, width := literal(pattern)
	if !strings.HasPrefix(name, want) {
		return 0, 0
	}
	return width, len(want)
}

// literal returns a pattern's first character, unescaped, and its length. A trailing "\" is
// itself.
func literal(pattern string) (string, int) {
	skip := 0
	if pattern[0] == '\\' && len(pattern) > 1 {
		skip = 1
	}
	_, size := utf8.DecodeRuneInString(pattern[skip:])
	return pattern[skip : skip+size], skip + size
}

// set is the text between brackets, without the negation.
type set struct {
	text   string
	negate bool
}

var (
	errSetOpen     = errors.New(`"[" is never closed; write \[ for the character itself`)
	errSetEmpty    = errors.New(`"[]" matches nothing; write \[\] for the characters themselves`)
	errSetBackward = errors.New("its range runs backwards")
)

// parseSet reads the set at the start of a pattern, and returns its length.
func parseSet(pattern string) (set, int, error) {
	i := 1
	negate := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negate {
		i++
	}
	start := i
	for i < len(pattern) && pattern[i] != ']' {
		_, width := literal(pattern[i:])
		i += width
	}
	switch {
	case i >= len(pattern):
		return set{}, 0, errSetOpen
	case i == start:
		return set{}, 0, errSetEmpty
	}
	return set{text: pattern[start:i], negate: negate}, i + 1, nil
}

func (s set) has(char rune) bool {
	found := false
	for lo, hi := range s.ranges {
		if lo <= char && char <= hi {
			found = true
			break
		}
	}
	return found != s.negate
}

// ranges yields the ranges of a set; a single character is a range of one.
func (s set) ranges(yield func(lo, hi rune) bool) {
	for text := s.text; text != ""; {
		char, width := literal(text)
		lo, _ := utf8.DecodeRuneInString(char)
		hi := lo
		text = text[width:]
		if len(text) > 1 && text[0] == '-' { // a trailing "-" is itself
			char, width = literal(text[1:])
			hi, _ = utf8.DecodeRuneInString(char)
			text = text[1+width:]
		}
		if !yield(lo, hi) {
			return
		}
	}
}

// CheckPattern returns an error if a text is a glob that can never match.
func CheckPattern(pattern string) error {
	for i := 0; i < len(pattern); {
		if pattern[i] != '[' {
			_, width := literal(pattern[i:])
			i += width
			continue
		}
		s, width, err := parseSet(pattern[i:])
		if err != nil {
			return err
		}
		for lo, hi := range s.ranges {
			if lo > hi {
				return errSetBackward
			}
		}
		i += width
	}
	return nil
}
