package resqued

import (
	"encoding/json"
	"reflect"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/wire/jsontext"
)

// Most arguments are integers and strings without escapes. encoding/json takes ten times as
// long for them as the functions below. Everything else, mistakes included, is left to
// encoding/json, so there is one opinion about what is valid.

// isPlain reports whether store may be tried for a type.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return false // a number, however it is spelled
		}
	default:
		return false
	}
	return !decodesItself(t)
}

// store stores a plain argument as encoding/json would. It returns false, and changes nothing,
// if the argument is not plain.
func store(raw []byte, v reflect.Value) bool {
	if v.Kind() == reflect.String {
		text, ok := plainText(raw)
		if ok {
			v.SetString(text)
		}
		return ok
	}
	n, ok := plainInt(raw)
	if !ok || v.OverflowInt(n) {
		return false
	}
	v.SetInt(n)
	return true
}

// plainText reads a JSON string without escapes.
func plainText(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	ascii, rest := true, raw[1:len(raw)-1]
	rest = rest[jsontext.PlainPrefix(rest):]
	for _, c := range rest {
		if c < ' ' || c == '"' || c == '\\' {
			return "", false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if !ascii && !utf8.Valid(raw) {
		return "", false
	}
	return string(raw[1 : len(raw)-1]), true
}

// plainInt reads a JSON integer of at most 18 digits, which always fit.
func plainInt(raw []byte) (n int64, ok bool) {
	digits := raw
	if len(raw) > 0 && raw[0] == '-' {
		digits = raw[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(raw) {
		n = -n
	}
	return n, true
}
