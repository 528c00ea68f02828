package wire

import (
	"bytes"
	"fmt"
)

// maxDepth is the maximum nesting of arrays and objects, as in Ruby's JSON.
const maxDepth = 100

// scanner checks JSON in one pass. Unlike encoding/json it does not silently replace invalid UTF-8
// and unpaired surrogates.
type scanner struct {
	data   []byte
	pos    int
	reason string
}

func (s *scanner) fail(reason string) bool {
	if s.reason == "" {
		s.reason = reason
	}
	return false
}

func (s *scanner) failf(format string, args ...any) bool {
	return s.fail(fmt.Sprintf(format, args...))
}

func (s *scanner) unexpected(want string) bool {
	if s.pos >= len(s.data) {
		return s.failf("not JSON: it ends where %s should stand", want)
	}
	return s.failf("not JSON: byte %d is %q where %s should stand", s.pos, s.data[s.pos], want)
}

func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) open() bool {
	switch c := s.peek(); {
	case c == '{':
		s.pos++
		return true
	case len(s.data) == 0:
		return s.fail("it is empty")
	case bytes.HasPrefix(s.data, []byte("\xef\xbb\xbf")):
		return s.fail("it starts with a byte order mark")
	case kindOf(c) == "":
		return s.unexpected("an object")
	default:
		return s.other(c)
	}
}

// other fails for a text that is not an object, or only begins like a value: "not json" begins like null.
func (s *scanner) other(c byte) bool {
	if !s.value(1) {
		return false
	}
	if s.space(); s.pos < len(s.data) {
		return s.failf("not JSON: %d bytes follow what begins like %s", len(s.data)-s.pos, kindOf(c))
	}
	return s.failf("it is %s, not an object", kindOf(c))
}

// empty takes the closing byte of an empty object or array.
func (s *scanner) empty(closing byte) bool {
	if s.space(); s.peek() == closing {
		s.pos++
		return true
	}
	return false
}

// key takes a key, its colon and surrounding space, and returns the key without escapes.
func (s *scanner) key() ([]byte, bool) {
	s.space()
	if s.peek() != '"' {
		return nil, s.unexpected("a key")
	}
	start := s.pos
	if !s.str() {
		return nil, false
	}
	raw := s.data[start:s.pos]
	if s.space(); s.peek() != ':' {
		return nil, s.unexpected("a colon")
	}
	s.pos++
	s.space()
	if bytes.IndexByte(raw, '\\') >= 0 {
		return []byte(unquote(raw)), true
	}
	return raw[1 : len(raw)-1], true
}

// next takes a comma (more follows) or the closing byte.
func (s *scanner) next(closing byte) (more, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		return true, true
	case closing:
		s.pos++
		return false, true
	default:
		return false, s.unexpected(fmt.Sprintf("a comma or %q", closing))
	}
}

// value takes any value; depth is its nesting if it is an array or object.
func (s *scanner) value(depth int) bool {
	switch c := s.peek(); c {
	case '"':
		return s.str()
	case '{', '[':
		if depth > maxDepth {
			return s.failf("it is nested deeper than %d", maxDepth)
		}
		s.pos++
		if c == '{' {
			return s.object(depth)
		}
		return s.array(depth)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) object(depth int) bool {
	for more := !s.empty('}'); more; {
		_, ok := s.key()
		if !ok || !s.value(depth+1) {
			return false
		}
		if more, ok = s.next('}'); !ok {
			return false
		}
	}
	return true
}

func (s *scanner) array(depth int) bool {
	for more := !s.empty(']'); more; {
		s.space()
		if !s.value(depth + 1) {
			return false
		}
		var ok bool
		if more, ok = s.next(']'); !ok {
			return false
		}
	}
	return true
}

func (s *scanner) word(w string) bool {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.unexpected(fmt.Sprintf("%q", w))
		}
		s.pos++
	}
	return true
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case c >= '1' && c <= '9':
		s.digits()
	default:
		return s.unexpected("a value")
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// kindOf names the kind of value that starts with c; "" = none.
func kindOf(c byte) string {
	switch {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't', c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-', c >= '0' && c <= '9':
		return "a number"
	default:
		return ""
	}
}
