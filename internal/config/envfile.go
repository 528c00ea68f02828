package config

import (
	"errors"
	"strings"
	"unicode/utf8"
)

type variable struct {
	name, value string
	line        int // of the name, from 1
}

// valid reports whether systemd accepts the name.
func (v variable) valid() bool {
	for i, r := range v.name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return v.name != ""
}

const (
	beforeName = iota
	inName
	inComment
	afterBackslashInComment
	beforeValue
	inValue
	afterBackslash
	inSingleQuotes
	inDoubleQuotes
	afterBackslashInQuotes
)

var errNoUTF8 = errors.New("is not UTF-8")

// parseEnvFile reads the format of systemd's EnvironmentFile= (systemd.exec(5)): NAME=value lines,
// comments with # or ;, values quoted in whole or in parts, and backslash continuations. Nothing
// is expanded. Like systemd, it ignores other lines.
func parseEnvFile(data []byte) ([]variable, error) {
	if !utf8.Valid(data) {
		return nil, errNoUTF8
	}
	var all []variable
	var name, value strings.Builder
	state, line, start := beforeName, 1, 0
	plain := 0 // the length of the value without trailing white space
	push := func() {
		text := value.String()
		all = append(all, variable{name: strings.TrimRight(name.String(), " \t"), value: text[:plain], line: start})
		name.Reset()
		value.Reset()
		plain = 0
	}
	keep := func(c byte) {
		value.WriteByte(c)
		plain = value.Len()
	}
	for _, c := range data {
		newline := c == '\n' || c == '\r'
		blank := newline || c == ' ' || c == '\t'
		switch state {
		case beforeName:
			switch {
			case c == '#' || c == ';':
				state = inComment
			case !blank:
				state, start = inName, line
				name.WriteByte(c)
			}
		case inName:
			switch {
			case newline: // a line without "="
				state = beforeName
				name.Reset()
			case c == '=':
				state = beforeValue
			default:
				name.WriteByte(c)
			}
		case inComment:
			switch {
			case c == '\\':
				state = afterBackslashInComment
			case newline:
				state = beforeName
			}
		case afterBackslashInComment:
			if state = inComment; newline {
				state = beforeName
			}
		case beforeValue:
			switch {
			case newline:
				push()
				state = beforeName
			case c == '\'':
				state = inSingleQuotes
			case c == '"':
				state = inDoubleQuotes
			case c == '\\':
				state = afterBackslash
			case !blank:
				state = inValue
				keep(c)
			}
		case inValue:
			switch {
			case newline:
				push()
				state = beforeName
			case c == '\\':
				state, plain = afterBackslash, value.Len()
			case blank:
				value.WriteByte(c)
			default:
				keep(c)
			}
		case afterBackslash:
			if state = inValue; !newline {
				keep(c)
			}
		case inSingleQuotes:
			if c == '\'' {
				state = beforeValue
			} else {
				keep(c)
			}
		case inDoubleQuotes:
			switch c {
			case '"':
				state = beforeValue
			case '\\':
				state = afterBackslashInQuotes
			default:
				keep(c)
			}
		case afterBackslashInQuotes:
			state = inDoubleQuotes
			switch {
			case strings.IndexByte("\"\\`$", c) >= 0:
				keep(c)
			case c != '\n':
				keep('\\')
				keep(c)
			}
		}
		if c == '\n' {
			line++
		}
	}
	if state >= beforeValue {
		push()
	}
	return all, nil
}
