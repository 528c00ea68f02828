package top

import (
	"strings"
	"unicode/utf8"
)

// Key is one key of the terminal: a printable character, or one of the names below.
type Key string

// Keys that are no printable character.
const (
	KeyUp        Key = "up"
	KeyDown      Key = "down"
	KeyPageUp    Key = "page up"
	KeyPageDown  Key = "page down"
	KeyHome      Key = "home"
	KeyEnd       Key = "end"
	KeyTab       Key = "tab"
	KeyBackTab   Key = "back tab"
	KeyEnter     Key = "enter"
	KeyEscape    Key = "escape"
	KeyBackspace Key = "backspace"
	KeyClear     Key = "^U"
	KeyInterrupt Key = "^C"
	KeySuspend   Key = "^Z"
	KeyRedraw    Key = "^L"
	keyUnknown   Key = "unknown"
)

// controls are the keys that send one byte.
var controls = map[byte]Key{
	0x03: KeyInterrupt, 0x04: KeyInterrupt, 0x08: KeyBackspace, 0x09: KeyTab, 0x0a: KeyEnter, 0x0c: KeyRedraw, 0x0d: KeyEnter,
	0x0e: KeyDown, 0x10: KeyUp, 0x15: KeyClear, 0x1a: KeySuspend, 0x7f: KeyBackspace,
}

// sequences are the keys that send several bytes, after ESC [ or ESC O.
var sequences = map[string]Key{
	"A": KeyUp, "B": KeyDown, "H": KeyHome, "F": KeyEnd, "Z": KeyBackTab,
	"1~": KeyHome, "4~": KeyEnd, "5~": KeyPageUp, "6~": KeyPageDown, "7~": KeyHome, "8~": KeyEnd,
}

// ParseKeys splits what a terminal has sent into keys. Rest is the beginning of one of which the
// end is still to come; a lone ESC is a key.
func ParseKeys(in []byte) (keys []Key, rest []byte) {
	for len(in) > 0 {
		switch b := in[0]; {
		case b == 0x1b && len(in) == 1:
			return append(keys, KeyEscape), nil
		case b == 0x1b && (in[1] == '[' || in[1] == 'O'):
			end := 2
			for end < len(in) && (in[end] < 0x40 || in[end] > 0x7e) {
				end++
			}
			if end == len(in) {
				if end > 32 { // no terminal sends that
					return append(keys, keyUnknown), nil
				}
				return keys, in
			}
			key, known := sequences[string(in[2:end+1])]
			if !known {
				key = keyUnknown
			}
			keys, in = append(keys, key), in[end+1:]
		case b == 0x1b:
			keys, in = append(keys, KeyEscape), in[1:]
		case b < 0x20 || b == 0x7f:
			key, known := controls[b]
			if !known {
				key = keyUnknown
			}
			keys, in = append(keys, key), in[1:]
		default:
			if !utf8.FullRune(in) {
				return keys, in
			}
			r, n := utf8.DecodeRune(in)
			if r == utf8.RuneError {
				keys = append(keys, keyUnknown)
			} else {
				keys = append(keys, Key(string(r)))
			}
			in = in[n:]
		}
	}
	return keys, nil
}

// text returns the character that a key types, "" for other keys.
func (k Key) text() string {
	if utf8.RuneCountInString(string(k)) == 1 && strings.TrimFunc(string(k), func(r rune) bool { return r < ' ' }) != "" {
		return string(k)
	}
	return ""
}
