package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxBulk is the longest text that is read: Redis's own limit.
	maxBulk = 512 << 20
	// maxElements bounds the elements of one aggregate, maxDepth how deep they nest.
	maxElements = 16 << 20
	maxDepth    = 64
	// maxLine bounds what stands in one line: simple texts, errors, numbers.
	maxLine = 1 << 20
	// maxWord bounds what is kept of the words of a request.
	maxWord = 256
)

// ErrProtocol: bytes that are neither RESP2 nor RESP3.
var ErrProtocol = errors.New("not RESP")

// readValue appends to dst the bytes of one whole RESP2 or RESP3 value, and
// returns dst and the type of the value (that behind its attributes). io.EOF is
// only returned before the first byte.
func readValue(r *bufio.Reader, dst []byte) ([]byte, byte, error) {
	dst, kind, err := appendValue(r, dst, 0)
	return dst, kind, err
}

func appendValue(r *bufio.Reader, dst []byte, depth int) ([]byte, byte, error) {
	if depth > maxDepth {
		return dst, 0, fmt.Errorf("%w: nested deeper than %d", ErrProtocol, maxDepth)
	}
	from := len(dst)
	dst, err := appendLine(r, dst)
	if err != nil {
		if depth > 0 {
			err = unexpected(err)
		}
		return dst, 0, err
	}
	line := dst[from : len(dst)-2]
	if len(line) == 0 {
		return dst, 0, fmt.Errorf("%w: an empty line", ErrProtocol)
	}
	kind := line[0]
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return dst, kind, nil
	case '$', '!', '=':
		n, err := length(line, maxBulk)
		if err != nil || n < 0 {
			return dst, kind, err
		}
		dst, err = appendBulk(r, dst, n)
		return dst, kind, err
	case '*', '~', '>', '%', '|':
		n, err := length(line, maxElements)
		if err != nil {
			return dst, kind, err
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		for range n {
			if dst, _, err = appendValue(r, dst, depth+1); err != nil {
				return dst, kind, err
			}
		}
		if kind == '|' {
			// An attribute is no value of its own: it belongs to the next one.
			dst, kind, err = appendValue(r, dst, depth+1)
		}
		return dst, kind, err
	default:
		return dst, kind, fmt.Errorf("%w: a value begins with %q", ErrProtocol, kind)
	}
}

// length reads the number in the line of a bulk or an aggregate. Only the null of
// RESP2 is negative; streams of unknown length ("$?"), which no server sends, are
// not understood.
func length(line []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil, n < -1, n > limit, n == -1 && line[0] != '$' && line[0] != '*', n != -1 && !plain(line[1:]):
		return 0, fmt.Errorf("%w: length %q", ErrProtocol, line[:min(len(line), 40)])
	}
	return n, nil
}

// plain: digits only, no sign.
func plain(text []byte) bool { return len(text) > 0 && text[0] >= '0' && text[0] <= '9' }

// appendLine appends up to and including CRLF.
func appendLine(r *bufio.Reader, dst []byte) ([]byte, error) {
	from := len(dst)
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		switch {
		case err == nil:
			if line := dst[from:]; len(line) < 2 || line[len(line)-2] != '\r' {
				return dst, fmt.Errorf("%w: a line without CRLF", ErrProtocol)
			}
			return dst, nil
		case len(dst)-from > maxLine:
			return dst, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case len(dst) > from:
			return dst, unexpected(err)
		default:
			return dst, err
		}
	}
}

// appendBulk appends n bytes and the CRLF behind them. What was announced is not
// allocated before it comes.
func appendBulk(r *bufio.Reader, dst []byte, n int) ([]byte, error) {
	for left := n + 2; left > 0; {
		part, err := r.Peek(min(left, r.Size()))
		if len(part) == 0 {
			return dst, unexpected(err)
		}
		dst = append(dst, part...)
		_, _ = r.Discard(len(part)) // peeked
		left -= len(part)
	}
	if !bytes.HasSuffix(dst, []byte("\r\n")) {
		return dst, fmt.Errorf("%w: a text of %d bytes is longer", ErrProtocol, n)
	}
	return dst, nil
}

// unexpected makes an end within a value one that nobody takes for a clean one.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Request is what is known of one request.
type Request struct {
	// Name is the command in upper case.
	Name string
	// Arg is its first argument, at most 256 bytes of it: the SHA-1 of EVALSHA.
	Arg string
	// Key is the first key of a script, as much of it.
	Key string
}

// Script says whether the request runs a script.
func (r Request) Script() bool {
	switch r.Name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO":
		return true
	}
	return false
}

// readRequest appends one request to dst. Besides arrays of texts there are
// inline commands, a line as a person types it.
func readRequest(r *bufio.Reader, dst []byte) ([]byte, Request, error) {
	first, err := r.Peek(1)
	if err != nil {
		return dst, Request{}, err
	}
	from := len(dst)
	if first[0] != '*' {
		dst, err = appendInline(r, dst)
		if err != nil {
			return dst, Request{}, err
		}
		return dst, requestOf(strings.Fields(string(dst[from:]))), nil
	}
	dst, _, err = readValue(r, dst)
	if err != nil {
		return dst, Request{}, err
	}
	return dst, requestOf(leadingTexts(dst[from:], 4)), nil
}

// appendInline is appendLine for a line that may end without CR.
func appendInline(r *bufio.Reader, dst []byte) ([]byte, error) {
	from := len(dst)
	dst, err := appendLine(r, dst)
	if errors.Is(err, ErrProtocol) && len(dst) > from && dst[len(dst)-1] == '\n' {
		return dst, nil
	}
	return dst, err
}

func requestOf(words []string) Request {
	var q Request
	if len(words) > 0 {
		q.Name = strings.ToUpper(words[0][:min(len(words[0]), maxWord)])
	}
	if len(words) > 1 {
		q.Arg = words[1][:min(len(words[1]), maxWord)]
	}
	if len(words) > 3 && words[2] != "0" && q.Script() {
		q.Key = words[3][:min(len(words[3]), maxWord)]
	}
	return q
}

// leadingTexts returns the first n texts of an array that readValue has read.
func leadingTexts(raw []byte, n int) []string {
	_, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	var texts []string
	for len(texts) < n && len(rest) > 0 && rest[0] == '$' {
		head, body, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 || size+2 > len(body) {
			break
		}
		texts = append(texts, string(body[:min(size, maxWord)]))
		rest = body[size+2:]
	}
	return texts
}

// silent: an empty line or an empty array, to which servers say nothing.
func silent(q Request) bool { return q.Name == "" }
