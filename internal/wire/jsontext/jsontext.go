// Package jsontext finds the stretches of a JSON text that need no second look. Byte by byte
// they would take most of the time of a long payload.
package jsontext

import "encoding/binary"

// PlainPrefix returns how many bytes at the beginning of text are ASCII and neither controls,
// quotes nor backslashes. It looks at eight at a time and stops at the first eight of
// which one is something else, so the rest has to be looked at one by one.
func PlainPrefix(text []byte) int {
	const each, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(text); n += 8 {
		eight := binary.LittleEndian.Uint64(text[n:])
		quotes, slashes := eight^'"'*each, eight^'\\'*each
		if (eight|(eight-' '*each)|(quotes-each)&^quotes|(slashes-each)&^slashes)&high != 0 {
			break
		}
	}
	return n
}
