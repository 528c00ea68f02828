package jobkey

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the only hash that Redis scripts have
	"encoding/hex"
)

// longest is how many bytes of a job's arguments stand in a key in plain text.
const longest = 200

// classArgs returns the name of a payload's lock under the style class-args: what
// lockname of payload.lua returns, byte for byte, because a job is locked
// under the same key whoever computes it. A payload that is no plain job is its
// own name.
func classArgs(payload []byte) string {
	if class, args, ok := flat(payload); ok {
		return string(class) + string(args)
	}
	class, args, ok := envelope(payload)
	if !ok {
		return wholePayload(payload)
	}
	return string(class) + abridge(squeeze(args))
}

// flat reads what most payloads are: the class, then short arguments without an array among
// them. It is quickname of the script, which judges by the bytes alone.
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
		case '[', ']', '\n', '\t', '\r':
			return nil, nil, false
		case ' ':
			if bytes.IndexByte([]byte("[{,:"), args[i]) >= 0 || bytes.IndexByte([]byte("]},:"), args[i+2]) >= 0 {
				return nil, nil, false
			}
		}
	}
	return class, args, true
}

// wholePayload is the name under the style payload.
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

// envelope finds the class and the arguments as they stand in the payload. Like
// the script it only goes from quote to quote and from bracket to bracket, so
// that it says the same about what is no JSON at all.
func envelope(s []byte) (class, args []byte, ok bool) {
	if class, args, ok = usual(s); class != nil {
		return class, args, ok
	}
	i := skip(s, 0)
	if at(s, i) != '{' {
		return nil, nil, false
	}
	i = skip(s, i+1)
	for {
		key, next, found := keyAt(s, i)
		if !found {
			return nil, nil, false
		}
		i = next
		end := valueEnd(s, i)
		if end < 0 {
			return nil, nil, false
		}
		switch string(key) {
		case "class":
			if s[i] != '"' {
				return nil, nil, false
			}
			class = s[i+1 : end-1]
		case "args":
			args = s[i:end]
		}
		i = skip(s, end)
		separator := at(s, i)
		if separator == '}' {
			break
		}
		if separator != ',' {
			return nil, nil, false
		}
		i = skip(s, i+1)
	}
	if class == nil {
		return nil, nil, false
	}
	if args == nil || string(args) == "null" {
		args = []byte("[]")
	}
	return class, args, true
}

// usualClass reads the class of a payload as Resque writes it, and where the array of its
// arguments begins.
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

// usual reads a payload as Resque writes it. Class is nil if it is another one.
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

// closing returns the index behind the bracket that ends the value beginning at
// i, or -1.
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

// squeeze removes white space outside of strings. A string without an end is kept
// as it is.
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

// spaces are what Lua's %s stands for.
const spaces = " \t\n\v\f\r"

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func skip(s []byte, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

// at returns a byte, or 0 behind the end; none of the bytes looked for is 0.
func at(s []byte, i int) byte {
	if i < len(s) {
		return s[i]
	}
	return 0
}
