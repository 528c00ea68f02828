package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued"
)

// invalidClass wraps bytes that are not a payload in failure records: every page needs an object
// with a class there.
const invalidClass = "Resqued::InvalidPayload"

// EncodePayload returns {"class":…,"args":[…]} as Ruby's Resque writes it: without spaces or
// unneeded escapes. Args given as resqued.Args or []json.RawMessage keep their bytes; any other
// value must encode to a JSON array; nil means no arguments. Parse accepts the result. It has no
// push time: unique queues, locks of some styles and Ruby's dequeue recognize equal jobs by
// equal bytes.
func EncodePayload(class string, args any) ([]byte, error) {
	if !utf8.ValidString(class) {
		return nil, fmt.Errorf("payload of class %s: the name is not valid UTF-8", Printable(class, 80))
	}
	list, err := encodeArgs(args)
	if err != nil {
		return nil, fmt.Errorf("payload of class %q: %w", Printable(class, 80), err)
	}
	b := make([]byte, 0, len(`{"class":"","args":}`)+len(class)+len(list))
	b = append(b, `{"class":`...)
	b = AppendString(b, class)
	b = append(b, `,"args":`...)
	b = append(b, list...)
	b = append(b, '}')
	if _, err := Parse(b, 0); err != nil {
		return nil, err
	}
	return b, nil
}

// Running returns the value of worker:<id> for a job running since runAt. It is for pages, so a
// large payload is reduced to its class.
func Running(queue string, runAt time.Time, class string, payload []byte) []byte {
	if len(payload) > maxInline {
		stub := AppendString([]byte(`{"class":`), cut(class, maxExceptionText))
		payload = fmt.Appendf(stub, `,"args":["%d bytes"]}`, len(payload))
	}
	b := make([]byte, 0, 64+len(queue)+len(payload))
	b = append(b, `{"queue":`...)
	b = AppendString(b, queue)
	b = append(b, `,"run_at":`...)
	b = AppendString(b, FormatISOUTC(runAt))
	b = append(b, `,"payload":`...)
	b = appendPayload(b, payload)
	return append(b, '}')
}

func encodeArgs(args any) ([]byte, error) {
	switch a := args.(type) {
	case nil:
		return []byte("[]"), nil
	case resqued.Args:
		return []byte(a.String()), nil
	case []json.RawMessage:
		return []byte(resqued.Args(a).String()), nil
	}
	if v := reflect.ValueOf(args); v.Kind() == reflect.Slice && v.IsNil() {
		return []byte("[]"), nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(args); err != nil {
		return nil, err
	}
	list := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(list) == 0 || list[0] != '[' {
		return nil, fmt.Errorf("arguments must be a list, a %T is none", args)
	}
	list, odd := unescape(list)
	if odd && !validTexts(reflect.ValueOf(args)) {
		return nil, errors.New("a text among the arguments is not valid UTF-8")
	}
	return list, nil
}

// unescape removes escapes that encoding/json writes and Ruby does not (U+2028, U+2029). odd reports
// \ufffd, which it writes for invalid UTF-8, and others may write for U+FFFD.
func unescape(encoded []byte) (list []byte, odd bool) {
	if bytes.IndexByte(encoded, '\\') < 0 {
		return encoded, false
	}
	out := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); {
		if encoded[i] != '\\' {
			out = append(out, encoded[i])
			i++
			continue
		}
		size := 2
		if encoded[i+1] == 'u' {
			size = 6
		}
		switch esc := encoded[i : i+size]; string(esc) {
		case `\u2028`:
			out = append(out, "\u2028"...)
		case `\u2029`:
			out = append(out, "\u2029"...)
		case `\ufffd`:
			odd = true
			out = append(out, esc...)
		default:
			out = append(out, esc...)
		}
		i += size
	}
	return out, odd
}

// appendPayload appends a valid payload as it is. Other bytes it wraps in an object, so that the
// record stays readable.
func appendPayload(b, payload []byte) []byte {
	if _, err := Parse(payload, 0); err == nil {
		return append(b, payload...)
	}
	b = append(b, `{"class":"`+invalidClass+`","args":["`...)
	b = base64.StdEncoding.AppendEncode(b, payload)
	return append(b, `"]}`...)
}

// AppendString appends s as Ruby's JSON writes it; invalid UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
}
