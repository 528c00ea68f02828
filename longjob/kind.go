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

// kindOf returns the id that runs with the same class and arguments share.
func kindOf(class string, args resqued.Args) string {
	sum := sha256.Sum256([]byte(class + "\x00" + alike(args.String())))
	return hex.EncodeToString(sum[:16])
}

// alike returns the canonical form of JSON: no white space, no unnecessary escapes, keys of
// objects sorted. Numbers stay unchanged, because 1 and 1.0 differ for some programs.
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
	// Unpaired surrogates have all become one character, so such texts cannot be compared.
	if bytes.ContainsRune(b.Bytes(), utf8.RuneError) {
		return text
	}
	return strings.TrimSuffix(b.String(), "\n")
}
