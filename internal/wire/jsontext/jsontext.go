// Package jsontext skips the parts of JSON strings without special characters. Byte by byte they
// would take most of the time of a long payload.
package jsontext

import "encoding/binary"

// PlainPrefix returns how many leading bytes of text are ASCII without controls, quotes and
// backslashes. It checks eight bytes at a time, so up to seven more may follow.
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
