package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// SplitCommand splits a text into a program and its arguments as a shell does: at spaces, with
// quotes and backslashes. Text that only a shell understands is refused.
func SplitCommand(text string) (argv []string, err error) {
	var word strings.Builder
	inWord, quote, escaped := false, rune(0), false
	for i, r := range text {
		needsShell := func() error {
			return fmt.Errorf("%q at character %d needs a shell, and none is involved; in single quotes the program gets it as it is, and sh -c '…' starts a shell",
				r, len([]rune(text[:i]))+1)
		}
		switch {
		case r == 0:
			return nil, errNUL
		case escaped:
			escaped = false
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
		case quote == '\'' && r != '\'':
			word.WriteRune(r)
		case r == '\\':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case r == '$', r == '`':
			return nil, needsShell()
		case quote != 0:
			word.WriteRune(r)
		case r == '\'', r == '"':
			quote, inWord = r, true
		case unicode.IsSpace(r):
			if inWord {
				argv = append(argv, word.String())
				word.Reset()
				inWord = false
			}
		case strings.ContainsRune("|&;<>()*?[", r), strings.ContainsRune("~#", r) && !inWord:
			return nil, needsShell()
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("a quote (%c) is never closed", quote)
	case escaped:
		return nil, errors.New("ends with a backslash, which escapes nothing")
	}
	if inWord {
		argv = append(argv, word.String())
	}
	switch {
	case len(argv) == 0 || argv[0] == "":
		return nil, errors.New("names no program; write the program first: --runner 'bundle exec resqued-runner config/environment'")
	case assignment(argv[0]):
		return nil, fmt.Errorf("%s sets a variable, which only a shell does; put env in front of it: --runner 'env %s'", shown(argv[0]), strings.TrimSpace(text))
	}
	return argv, nil
}

// assignment reports whether a shell takes a first word for a variable assignment.
func assignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && !unicode.IsDigit(r) && (r > unicode.MaxASCII || !unicode.IsLetter(r))
	})
}
