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
	// maxBulk is the length limit of a bulk string: Redis's own limit.
	maxBulk = 512 << 20
	// maxElements limits the elements of one aggregate, maxDepth the nesting.
	maxElements = 16 << 20
	maxDepth    = 64
	// maxLine limits the length of one line: simple strings, errors, numbers.
	maxLine = 1 << 20
	// maxWord limits the recorded length of a request's words.
	maxWord = 256
)

// ErrProtocol reports bytes that are neither RESP2 nor RESP3.
var ErrProtocol = errors.New("not RESP")

// readValue appends the bytes of one whole RESP2 or RESP3 value to dst. It returns dst and the
// type of the value, which is the one after its attributes. It returns io.EOF only before the
// first byte.
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
			// An attribute is not a value of its own; it belongs to the next one.
			dst, kind, err = appendValue(r, dst, depth+1)
		}
		return dst, kind, err
	default:
		return dst, kind, fmt.Errorf("%w: a value begins with %q", ErrProtocol, kind)
	}
}

// length parses the number in the first line of a bulk or an aggregate. Only the null of RESP2
// is negative. Streams of unknown length ("$?"), which no server sends, are not supported.
func length(line []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil, n < -1, n > limit, n == -1 && line[0] != '$' && line[0] != '*', n != -1 && !plain(line[1:]):
		return 0, fmt.Errorf("%w: length %q", ErrProtocol, line[:min(len(line), 40)])
	}
	return n, nil
}

// plain reports whether text begins with a digit, not with a sign.
func plain(text []byte) bool { return len(text) > 0 && text[0] >= '0' && text[0] <= '9' }

// appendLine appends a line including its CRLF.
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

// appendBulk appends n bytes and the CRLF behind them. It allocates memory only as data
// arrives.
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

// unexpected converts io.EOF within a value to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Request describes one request.
type Request struct {
	// Name is the command in upper case.
	Name string
	// Arg is its first argument, at most 256 bytes of it. For EVALSHA that is the SHA-1.
	Arg string
	// Key is the first key of a script, limited to the same length.
	Key string
}

// Script reports whether the request runs a script.
func (r Request) Script() bool {
	switch r.Name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO":
		return true
	}
	return false
}

// readRequest appends one request to dst: an array of bulk strings, or an inline command, which
// is a line as typed by a person.
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

// leadingTexts returns the first n strings of an array read by readValue.
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

// silent reports whether the request is an empty line or array, to which servers do not reply.
func silent(q Request) bool { return q.Name == "" }
