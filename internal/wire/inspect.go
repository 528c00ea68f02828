package wire

import (
	"fmt"
	"strconv"
	"unicode"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire/jsontext"
)

// RubyStyle is a way in which Ruby prints hashes.
type RubyStyle int

const (
	// RubyUpTo33 is {"a"=>1}, as Ruby prints up to version 3.3.
	RubyUpTo33 RubyStyle = iota
	// Ruby34 is {"a" => 1}, as Ruby prints from version 3.4 on.
	Ruby34
)

func (s RubyStyle) arrow() string {
	if s == Ruby34 {
		return " => "
	}
	return "=>"
}

// Inspect returns the output of Ruby's inspect for a JSON value after JSON.parse, byte for byte,
// under a UTF-8 locale. (Under LANG=C, Ruby escapes everything that is not ASCII.) Values that
// Parse would not accept for a key are an *InvalidError.
//
// Printable characters are those of Go's Unicode version. A Ruby with another Unicode version prints
// characters added in between differently, and Ruby before 3.2 prints U+0085 as it is.
func Inspect(json []byte, style RubyStyle) (string, error) {
	p, err := newPrinter(json, style)
	if err != nil {
		return "", err
	}
	p.value()
	return string(p.out), nil
}

// RubyJoin returns the output of Ruby's Array#join("-") for arguments: nested arrays are flattened,
// nil is empty, strings are verbatim, hashes as with Inspect.
func RubyJoin(args resqued.Args, style RubyStyle) (string, error) {
	var out []byte
	for i, arg := range args {
		p, err := newPrinter(arg, style)
		if err != nil {
			return "", fmt.Errorf("argument %d: %w", i, err)
		}
		if i > 0 {
			out = append(out, '-')
		}
		p.out = out
		p.join()
		out = p.out
	}
	return string(out), nil
}

// printer prints JSON that was scanned before, so nothing can fail.
type printer struct {
	s     scanner
	style RubyStyle
	out   []byte
}

// newPrinter checks a JSON value and returns a printer before its first byte.
func newPrinter(json []byte, style RubyStyle) (*printer, error) {
	s := scanner{data: json}
	s.space()
	if ok := s.value(1); ok {
		if s.space(); s.pos < len(s.data) {
			s.failf("%d bytes follow the value", len(s.data)-s.pos)
		}
	}
	if s.reason != "" {
		return nil, &InvalidError{Reason: s.reason, Excerpt: excerpt(json)}
	}
	p := &printer{s: scanner{data: json}, style: style}
	p.s.space()
	return p, nil
}

func (p *printer) value() {
	switch p.s.peek() {
	case '"':
		p.text(p.str())
	case '{':
		p.object()
	case '[':
		p.array(p.value, "[", ", ", "]")
	case 'n':
		p.s.word("null")
		p.out = append(p.out, "nil"...)
	default:
		p.plain()
	}
}

func (p *printer) join() {
	switch p.s.peek() {
	case '"':
		p.out = append(p.out, p.str()...)
	case '{':
		p.object()
	case '[':
		p.array(p.join, "", "-", "")
	case 'n':
		p.s.word("null")
	default:
		p.plain()
	}
}

func (p *printer) plain() {
	switch p.s.peek() {
	case 't':
		p.s.word("true")
		p.out = append(p.out, "true"...)
	case 'f':
		p.s.word("false")
		p.out = append(p.out, "false"...)
	default:
		start := p.s.pos
		p.s.number()
		p.out = appendRubyNumber(p.out, p.s.data[start:p.s.pos])
	}
}

// array prints the elements, each with element, and the text around and between them.
func (p *printer) array(element func(), before, between, after string) {
	p.out = append(p.out, before...)
	p.s.pos++
	for more := !p.s.empty(']'); more; {
		p.s.space()
		element()
		if more, _ = p.s.next(']'); more {
			p.out = append(p.out, between...)
		}
	}
	p.out = append(p.out, after...)
}

// object prints a hash. A repeated key keeps its first place and gets its last value.
func (p *printer) object() {
	p.s.pos++
	p.out = append(p.out, '{')
	start := len(p.out)
	var members [][]byte // the last text of each key, slices of out
	places := map[string]int{}
	again := false
	for more := !p.s.empty('}'); more; {
		key, _ := p.s.key()
		from := len(p.out)
		p.text(string(key))
		p.out = append(p.out, p.style.arrow()...)
		p.value()
		text := p.out[from:len(p.out):len(p.out)]
		if place, known := places[string(key)]; known {
			members[place], again = text, true
		} else {
			places[string(key)] = len(members)
			members = append(members, text)
		}
		if more, _ = p.s.next('}'); more {
			p.out = append(p.out, ", "...)
		}
	}
	if again {
		var whole []byte // separate, because members are slices of out
		for i, text := range members {
			if i > 0 {
				whole = append(whole, ", "...)
			}
			whole = append(whole, text...)
		}
		p.out = append(p.out[:start], whole...)
	}
	p.out = append(p.out, '}')
}

func (p *printer) str() string {
	start := p.s.pos
	p.s.str()
	return unquote(p.s.data[start:p.s.pos])
}

var rubyEscapes = map[rune]byte{
	'"': '"', '\\': '\\', '\a': 'a', '\b': 'b', '\t': 't', '\n': 'n', '\v': 'v', '\f': 'f', '\r': 'r', 0x1b: 'e',
}

// text prints a string, which must be valid UTF-8.
func (p *printer) text(text string) {
	p.out = append(p.out, '"')
	for i, r := range text {
		short, special := rubyEscapes[r]
		switch {
		case special:
			p.out = append(p.out, '\\', short)
		case r == '#' && i+1 < len(text) && (text[i+1] == '{' || text[i+1] == '$' || text[i+1] == '@'):
			p.out = append(p.out, '\\', '#')
		case rubyPrints(r):
			p.out = append(p.out, string(r)...)
		case r > 0xFFFF:
			p.out = fmt.Appendf(p.out, `\u{%X}`, r)
		default:
			p.out = fmt.Appendf(p.out, `\u%04X`, r)
		}
	}
	p.out = append(p.out, '"')
}

// rubyPrints reports whether a character is printable in Ruby: anything assigned or for private use,
// including formatting marks, except controls and line or paragraph separators.
func rubyPrints(r rune) bool {
	if r < 0x7F {
		return r >= ' '
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs, unicode.Cf, unicode.Co)
}

func appendRubyNumber(b, raw []byte) []byte {
	for _, c := range raw {
		if c == '.' || c == 'e' || c == 'E' {
			// Out of range is infinity or zero, as in Ruby.
			f, _ := strconv.ParseFloat(string(raw), 64)
			return jsontext.AppendRubyFloat(b, f)
		}
	}
	if string(raw) == "-0" { // an integer, which has no negative zero
		raw = raw[1:]
	}
	return append(b, raw...)
}
