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
	// MaxLine bounds a line of output, in bytes; the rest is dropped.
	MaxLine = 8 << 10
	// MaxTail bounds the part of stderr that becomes an error's text, in bytes.
	MaxTail = 16 << 10
)

// EachLine calls fn for each line of r, without its line break, until r ends. left is the number
// of bytes beyond MaxLine.
func EachLine(r io.Reader, fn func(line []byte, left int)) {
	b := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := b.ReadSlice('\n')
		left := 0
		if errors.Is(err, bufio.ErrBufferFull) {
			// skipLine reuses the buffer.
			line = bytes.Clone(line)
			left, err = skipLine(b)
		}
		if len(line) > 0 {
			fn(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), left)
		}
		if err != nil {
			// The end, or the deadline of drain.
			return
		}
	}
}

func skipLine(b *bufio.Reader) (skipped int, err error) {
	for {
		rest, err := b.ReadSlice('\n')
		skipped += len(bytes.TrimSuffix(rest, []byte("\n")))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return skipped, err
		}
	}
}

// Tail keeps the first maxHead and the last MaxTail bytes written to it: crash reports begin
// with the cause, and other programs end with it.
type Tail struct {
	head, buf []byte
	cut       bool
}

// maxHead is the length of the beginning that is kept, in bytes.
const maxHead = MaxTail / 4

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
		if !t.cut {
			t.head = bytes.Clone(t.buf[:maxHead])
		}
		t.buf = append(t.buf[:0], t.buf[extra:]...)
		t.cut = true
	}
}

// Text returns the kept text, at most MaxTail bytes, printable except for line breaks and tabs.
func (t *Tail) Text() string {
	t.trim()
	end := wire.PrintableLines(string(bytes.TrimRight(t.buf, " \t\r\n")), 0)
	if !t.cut {
		return Ends(end, MaxTail)
	}
	return first(wire.PrintableLines(string(t.head), 0), maxHead) + "…" + last(end, MaxTail-maxHead-len("…"))
}

// Ends returns at most most bytes of a text: the first quarter from its beginning, the rest from
// its end.
func Ends(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return first(text, most/4) + "…" + last(text, most-most/4-len("…"))
}

// maxRunError bounds the error of a run of a long job, in bytes. The run would keep the beginning
// of a longer text.
const maxRunError = 7 << 10

// RunError returns the part of stderr that becomes the error of a run of a long job: its end,
// after an ellipsis.
func RunError(stderr string) string {
	if len(stderr) <= maxRunError {
		return stderr
	}
	stderr = stderr[len(stderr)-maxRunError:]
	for !utf8.RuneStart(stderr[0]) {
		stderr = stderr[1:]
	}
	return "…" + stderr
}

// Said returns stderr as the end of an error's text.
func Said(stderr string) string {
	switch {
	case stderr == "":
		return ", nothing on stderr"
	case strings.Contains(stderr, "\n"):
		return ":\n" + stderr
	default:
		return ": " + stderr
	}
}

// first returns the beginning of a text, at most most bytes, in whole lines if possible.
func first(text string, most int) string {
	if len(text) > most {
		for !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[:i+1]
	}
	return text
}

// last returns the end of a text in the same way.
func last(text string, most int) string {
	from := max(0, len(text)-most)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	text = text[from:]
	if _, rest, ok := strings.Cut(text, "\n"); ok && rest != "" {
		text = rest
	}
	return text
}
