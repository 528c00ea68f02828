package jobkey

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the only hash that Redis scripts have
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// longest is how many bytes of a job's arguments a key contains in plain text.
const longest = 200

// classArgs returns the key of a payload in style class-args. It equals lockname in payload.lua,
// byte for byte: a job has one lock, whether Go or a script computes its key. If the payload is
// not a plain job, the key is the whole payload.
func classArgs(payload []byte) string {
	if class, args, ok := flat(payload); ok {
		return string(class) + string(args)
	}
	class, args, ok := envelope(payload)
	if !ok {
		return wholePayload(payload)
	}
	return string(unescape(class)) + abridge(unescape(squeeze(args)))
}

// flat reads the usual payload: the class, then short arguments without nested arrays or escapes.
// It mirrors quickname in payload.lua. As the algorithm's first rule it also decides about some
// payloads that are not JSON.
func flat(s []byte) (class, args []byte, ok bool) {
	class, start, ok := usualClass(s)
	if !ok || len(s) > 2*longest || !bytes.HasSuffix(s[start:], []byte("]}")) {
		return nil, nil, false
	}
	args = s[start : len(s)-1]
	if len(args) < 2 || len(args) > longest {
		return nil, nil, false
	}
	for i, c := range args[1 : len(args)-1] {
		switch c {
		case '[', ']', '\\', '\n', '\t', '\r':
			return nil, nil, false
		case ' ':
			if bytes.IndexByte([]byte("[{,:"), args[i]) >= 0 || bytes.IndexByte([]byte("]},:"), args[i+2]) >= 0 {
				return nil, nil, false
			}
		}
	}
	return class, args, true
}

func wholePayload(payload []byte) string { return abridge(payload) }

func abridge(text []byte) string {
	if len(text) > longest {
		return ":" + checksum(text)
	}
	return string(text)
}

func checksum(text []byte) string {
	sum := sha1.Sum(text) //nolint:gosec // not against forgery: it must be that of the script
	return hex.EncodeToString(sum[:])
}

// envelope finds the class and the arguments as written in the payload; an Active Job's are inside
// its wrapper. Like the script it only looks at quotes and brackets, so that both give the same
// answer for text that is not JSON.
func envelope(s []byte) (class, args []byte, ok bool) {
	if class, args, ok = usual(s); class == nil {
		i := skip(s, 0)
		if at(s, i) != '{' {
			return nil, nil, false
		}
		_, ok = object(s, skip(s, i+1), func(key string, value []byte) {
			switch key {
			case "class":
				class = value
			case "args":
				args = value
			}
		})
		if !ok || at(class, 0) != '"' {
			return nil, nil, false
		}
		class = class[1 : len(class)-1]
		if args == nil || string(args) == "null" {
			args = []byte("[]")
		}
	}
	if ok && bytes.HasSuffix(class, []byte("::JobWrapper")) {
		if own, list, is := unwrapped(args); is {
			return own, list, true
		}
	}
	return class, args, ok
}

func unwrapped(args []byte) (class, list []byte, ok bool) {
	i := skip(args, 1)
	if at(args, 0) != '[' || at(args, i) != '{' {
		return nil, nil, false
	}
	behind, ok := object(args, skip(args, i+1), func(key string, value []byte) {
		switch key {
		case "job_class":
			class = value
		case "arguments":
			list = value
		}
	})
	if !ok || string(args[behind:]) != "]" || len(class) < 3 || class[0] != '"' || at(list, 0) != '[' {
		return nil, nil, false
	}
	return class[1 : len(class)-1], list, true
}

// object calls member for each member of an object whose first key is at i. It returns the index
// behind the object and following white space; false for anything but a plain object.
func object(s []byte, i int, member func(key string, value []byte)) (behind int, ok bool) {
	for {
		key, start, found := keyAt(s, i)
		if !found {
			return 0, false
		}
		end := valueEnd(s, start)
		if end < 0 {
			return 0, false
		}
		member(string(key), s[start:end])
		end = skip(s, end)
		separator := at(s, end)
		if separator != ',' && separator != '}' {
			return 0, false
		}
		if i = skip(s, end+1); separator == '}' {
			return i, true
		}
	}
}

// usualClass reads the class of a payload as Resque writes it; start is where the argument array begins.
func usualClass(s []byte) (class []byte, start int, ok bool) {
	const before, between = `{"class":"`, `","args":`
	if !bytes.HasPrefix(s, []byte(before)) {
		return nil, 0, false
	}
	n := bytes.IndexAny(s[len(before):], `"\`)
	if n <= 0 {
		return nil, 0, false
	}
	rest := len(before) + n
	start = rest + len(between)
	if !bytes.HasPrefix(s[rest:], []byte(between)) || at(s, start) != '[' {
		return nil, 0, false
	}
	return s[len(before):rest], start, true
}

// usual reads a payload as Resque writes it; class is nil for other payloads.
func usual(s []byte) (class, args []byte, ok bool) {
	class, start, ok := usualClass(s)
	if !ok {
		return nil, nil, false
	}
	end := closing(s, start)
	if end < 0 {
		return class, nil, false
	}
	return class, s[start:end], true
}

// keyAt reads a key without escapes and its colon; next is where the value begins.
func keyAt(s []byte, i int) (key []byte, next int, ok bool) {
	if at(s, i) != '"' {
		return nil, 0, false
	}
	n := bytes.IndexAny(s[i+1:], `"\`)
	if n < 0 || s[i+1+n] != '"' {
		return nil, 0, false
	}
	colon := skip(s, i+n+2)
	if at(s, colon) != ':' {
		return nil, 0, false
	}
	return s[i+1 : i+1+n], skip(s, colon+1), true
}

// valueEnd returns the index behind the value that begins at i, or -1.
func valueEnd(s []byte, i int) int {
	switch at(s, i) {
	case '"':
		return stringEnd(s, i)
	case '[', '{':
		return closing(s, i)
	}
	for ; i < len(s); i++ {
		if s[i] == ',' || s[i] == '}' || isSpace(s[i]) {
			return i
		}
	}
	return -1
}

// stringEnd returns the index behind the string that begins at i, or -1.
func stringEnd(s []byte, i int) int {
	for i++; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// closing returns the index behind the bracket that closes the value at i, or -1.
func closing(s []byte, i int) int {
	depth := 0
	for i < len(s) {
		switch s[i] {
		case '"':
			if i = stringEnd(s, i); i < 0 {
				return -1
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// squeeze removes white space outside strings. An unterminated string is kept.
func squeeze(s []byte) []byte {
	if !bytes.ContainsAny(s, spaces) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] == '"' {
			end := stringEnd(s, i)
			if end < 0 {
				end = len(s)
			}
			out = append(out, s[i:end]...)
			i = end
			continue
		}
		if !isSpace(s[i]) {
			out = append(out, s[i])
		}
		i++
	}
	return out
}

// unescape removes unneeded escapes from JSON strings and normalizes control characters, so that
// the output of all encoders is equal.
func unescape(s []byte) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\' || i+1 == len(s):
			out = append(out, s[i])
			continue
		case s[i+1] == '/':
			out = append(out, '/')
		case s[i+1] == 'u' && i+6 <= len(s) && isHex(s[i+2:i+6]):
			n, _ := strconv.ParseUint(string(s[i+2:i+6]), 16, 16)
			out = appendUnit(out, uint16(n))
			i += 4
		default:
			out = append(out, s[i], s[i+1])
		}
		i++
	}
	return joinHalves(out)
}

// joinHalves replaces two surrogate halves, as appendUnit writes them, by their character.
func joinHalves(s []byte) []byte {
	half := func(i int, kind byte) (bits rune, ok bool) {
		if i+2 >= len(s) || s[i] != 0xed || s[i+1]&0xf0 != kind || s[i+2]&0xc0 != 0x80 {
			return 0, false
		}
		return rune(s[i+1]&0xf)<<6 | rune(s[i+2]&0x3f), true
	}
	out := s[:0]
	for i := 0; i < len(s); i++ {
		if high, ok := half(i, 0xa0); ok {
			if low, ok := half(i+3, 0xb0); ok {
				out = utf8.AppendRune(out, 0x10000+high<<10|low)
				i += 5
				continue
			}
		}
		out = append(out, s[i])
	}
	return out
}

// appendUnit appends a 16-bit unit as in a JSON string. Surrogate halves become three bytes each,
// as in CESU-8.
func appendUnit(b []byte, n uint16) []byte {
	if i := strings.IndexByte("\b\t\n\f\r\"\\", byte(n)); n < 0x80 && i >= 0 {
		return append(b, '\\', "btnfr\"\\"[i])
	}
	switch {
	case n < 0x20:
		return fmt.Appendf(b, `\u%04x`, n)
	case n < 0x80:
		return append(b, byte(n))
	case n < 0x800:
		return append(b, 0xc0|byte(n>>6), 0x80|byte(n&0x3f))
	default:
		return append(b, 0xe0|byte(n>>12), 0x80|byte(n>>6&0x3f), 0x80|byte(n&0x3f))
	}
}

func isHex(s []byte) bool { return len(bytes.Trim(s, "0123456789abcdefABCDEF")) == 0 }

// spaces are the characters of Lua's %s.
const spaces = " \t\n\v\f\r"

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func skip(s []byte, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

// at returns a byte, or 0 behind the end; no caller looks for a 0.
func at(s []byte, i int) byte {
	if i < len(s) {
		return s[i]
	}
	return 0
}
