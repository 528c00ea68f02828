package program

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/wire"
)

const (
	// MaxLine bounds a line of output, in bytes; the rest of it is left out.
	MaxLine = 8 << 10
	// MaxTail bounds what of stderr becomes the text of an error, in bytes.
	MaxTail = 16 << 10
)

// EachLine calls fn for each line of r, without its line break, until r ends.
// left counts the bytes of the line beyond MaxLine.
func EachLine(r io.Reader, fn func(line []byte, left int)) {
	b := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := b.ReadSlice('\n')
		left := 0
		if errors.Is(err, bufio.ErrBufferFull) {
			// The buffer is used again below.
			line = bytes.Clone(line)
			left, err = skipLine(b)
		}
		if len(line) > 0 {
			fn(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), left)
		}
		if err != nil {
			// The end, or the deadline of drain: there is no more to be had.
			return
		}
	}
}

// skipLine counts the bytes up to the end of the line.
func skipLine(b *bufio.Reader) (skipped int, err error) {
	for {
		rest, err := b.ReadSlice('\n')
		skipped += len(bytes.TrimSuffix(rest, []byte("\n")))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return skipped, err
		}
	}
}

// Tail keeps the last MaxTail bytes that are written to it.
type Tail struct {
	buf []byte
	cut bool
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 4*MaxTail {
		t.trim()
	}
	return len(p), nil
}

func (t *Tail) trim() {
	if extra := len(t.buf) - MaxTail; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
		t.cut = true
	}
}

// Text returns what is kept, printable but for its line breaks and tabs, and
// again not longer than MaxTail.
func (t *Tail) Text() string {
	t.trim()
	raw := strings.ReplaceAll(string(t.buf), "\r\n", "\n")
	if t.cut {
		// Not from the middle of a line, if that is possible.
		if _, rest, ok := strings.Cut(raw, "\n"); ok && rest != "" {
			raw = rest
		}
	}
	var b strings.Builder
	for raw = strings.TrimRight(raw, " \t\r\n"); ; {
		i := strings.IndexAny(raw, "\n\t")
		if i < 0 {
			b.WriteString(wire.Printable(raw, 0))
			break
		}
		b.WriteString(wire.Printable(raw[:i], 0))
		b.WriteByte(raw[i])
		raw = raw[i+1:]
	}
	text := b.String()
	if !t.cut && len(text) <= MaxTail {
		return text
	}
	if over := len(text) - (MaxTail - len("…")); over > 0 {
		text = text[over:]
		for !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	return "…" + text
}
