package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/wire/jsontext"
)

// str takes a string; the current byte is its opening quote.
func (s *scanner) str() bool {
	s.pos++
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return true
		case c == '\\':
			if !s.escape() {
				return false
			}
		case c < ' ':
			return s.failf("not JSON: byte %d is the control character %q", s.pos, c)
		case c < utf8.RuneSelf:
			s.pos++
			if s.pos%8 == 0 { // not at each byte: special characters are often close together
				s.pos += jsontext.PlainPrefix(s.data[s.pos:])
			}
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.failf("invalid UTF-8 at byte %d", s.pos)
			}
			s.pos += size
		}
	}
	return s.unexpected("a closing quote")
}

func (s *scanner) escape() bool {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return true
	case 'u':
	default:
		return s.unexpected("an escape")
	}
	at := s.pos - 1
	r, ok := s.hex()
	if !ok {
		return false
	}
	if r < 0xD800 || r > 0xDFFF {
		return true
	}
	if r <= 0xDBFF && bytes.HasPrefix(s.data[s.pos:], []byte(`\u`)) {
		s.pos++
		low, ok := s.hex()
		if !ok {
			return false
		}
		if low >= 0xDC00 && low <= 0xDFFF {
			return true
		}
	}
	return s.failf("half a surrogate pair at byte %d", at)
}

func (s *scanner) hex() (rune, bool) {
	s.pos++
	var r rune
	for range 4 {
		c := s.peek()
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s.unexpected("a hexadecimal digit")
		}
		r = r<<4 | rune(c)
		s.pos++
	}
	return r, true
}

// unquote decodes a string that has been scanned.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		// The scanner accepts only what encoding/json accepts.
		panic(fmt.Sprintf("wire: scanned string %q: %v", raw, err))
	}
	return text
}
