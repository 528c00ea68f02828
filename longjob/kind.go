package longjob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/resqued/resqued"
)

// kindOf names what runs have in common that have the same class and arguments.
func kindOf(class string, args resqued.Args) string {
	sum := sha256.Sum256([]byte(class + "\x00" + alike(args.String())))
	return hex.EncodeToString(sum[:16])
}

// alike returns JSON in the one form that all texts have which say the same: without white
// space, with the characters themselves instead of their escapes, and the keys of objects in
// order. Numbers stay as they are, because 1 and 1.0 are not the same to all programs.
func alike(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	if _, err := d.Token(); err != io.EOF {
		return text
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return text
	}
	// Halves of surrogate pairs have all become one character: such texts are not alike.
	if bytes.ContainsRune(b.Bytes(), utf8.RuneError) {
		return text
	}
	return strings.TrimSuffix(b.String(), "\n")
}
