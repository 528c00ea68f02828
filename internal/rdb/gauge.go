package rdb

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// The limits of answers. The library allocates whatever size an answer announces.
const (
	// maxBulk bounds a text: the largest value by Redis's default, and room for the rest of a
	// record.
	maxBulk = 513 << 20
	// maxShare bounds the texts in all pending answers to one Client.
	maxShare = 1 << 30
	// maxElements bounds the values in one answer.
	maxElements = 1 << 22
	maxDepth    = 32
	// maxLine bounds a line: an error, a number or a length.
	maxLine = 1 << 20
	// smallAnswer is the size from which an answer counts in the share.
	smallAnswer = 1 << 20
)

// errForeign: the answer is not from Redis, or is not reasonable.
var errForeign = errors.New("the server's answer is refused")

// share is what the connections of a Client have in common: the bytes of large pending answers; tls,
// the certificates for new connections (see credentials); own, this machine's address, nil = unknown.
type share struct {
	bytes atomic.Int64
	tls   atomic.Pointer[tls.Config]
	own   atomic.Pointer[string]
}

func (s *share) trust(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	now := s.tls.Load()
	conf.RootCAs, conf.Certificates = now.RootCAs, now.Certificates
	return conf
}

// gauge parses the answers on a connection, RESP2 or RESP3, skipping over texts.
type gauge struct {
	share *share
	// The current line: its type, its length so far, and the number in it.
	kind     byte
	line     int
	number   int64
	digits   int
	negative bool
	// skip is how much of a text is still to come, including its end of line.
	skip int64
	// left are the values still to come in each open aggregate.
	left  [maxDepth]int64
	depth int
	// elements and bytes are the values, and the bytes of texts, in the current answer.
	elements, bytes int64

	mu sync.Mutex
	// held is how many of the bytes count in share. mu guards it because a connection may be closed
	// during a read.
	held   int64
	closed bool
}

// take parses a part of the stream. After an error, the position in the stream is lost.
func (g *gauge) take(p []byte) error {
	for len(p) > 0 {
		if g.skip > 0 {
			n := min(g.skip, int64(len(p)))
			p = p[n:]
			if g.skip -= n; g.skip == 0 {
				g.value()
			}
			continue
		}
		if g.line == 0 {
			g.kind, g.number, g.digits, g.negative = p[0], 0, 0, false
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		if err := g.read(part); err != nil {
			return err
		}
		if end < 0 {
			return nil
		}
		p = p[end+1:]
		g.line = 0
		if err := g.begin(); err != nil {
			return err
		}
	}
	return nil
}

func (g *gauge) read(part []byte) error {
	first := g.line == 0
	if g.line += len(part); g.line > maxLine {
		return fmt.Errorf("a line of more than %d bytes", maxLine)
	}
	if first {
		if len(part) == 0 {
			return errors.New("an empty line, where Redis would begin an answer")
		}
		part = part[1:]
	}
	switch g.kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return nil
	case '$', '!', '=', '*', '~', '>', '%', '|':
	default:
		return fmt.Errorf("it begins with %q", g.kind)
	}
	for _, c := range part {
		switch {
		case c >= '0' && c <= '9' && g.digits < 18:
			g.number = 10*g.number + int64(c-'0')
			g.digits++
		case c == '-' && g.digits == 0 && !g.negative:
			g.negative = true
		case c == '\r' && g.digits > 0:
		default:
			return fmt.Errorf("a length with %q in it", c)
		}
	}
	return nil
}

func (g *gauge) begin() error {
	switch g.kind {
	case '$', '!', '=':
		if g.negative {
			break
		}
		if g.number > maxBulk {
			return fmt.Errorf("a text of %d bytes; %d is the most", g.number, maxBulk)
		}
		g.skip = g.number + 2
		return g.count(g.skip)
	case '*', '~', '>', '%', '|':
		if g.negative {
			break
		}
		n := g.number
		if g.kind == '%' || g.kind == '|' {
			n *= 2
		}
		if g.elements += n; g.elements > maxElements {
			return fmt.Errorf("%d values; %d is the most", g.elements, maxElements)
		}
		if g.kind == '|' {
			n++ // the value that the attribute describes
		}
		if n == 0 {
			break
		}
		if g.depth == maxDepth {
			return fmt.Errorf("values nested deeper than %d", maxDepth)
		}
		g.left[g.depth] = n
		g.depth++
		return nil
	}
	g.value()
	return nil
}

func (g *gauge) value() {
	for ; g.depth > 0; g.depth-- {
		if g.left[g.depth-1]--; g.left[g.depth-1] > 0 {
			return
		}
	}
	if g.bytes >= smallAnswer {
		g.forget(false)
	}
	g.elements, g.bytes = 0, 0
}

func (g *gauge) count(n int64) error {
	g.bytes += n
	if g.bytes < smallAnswer {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	more := g.bytes - g.held
	g.held = g.bytes
	if all := g.share.bytes.Add(more); all > maxShare {
		return fmt.Errorf("%d bytes in all answers that are under way; %d is the most", all, maxShare)
	}
	return nil
}

// forget returns the answer's part of the share; if closed, later answers get none.
func (g *gauge) forget(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = g.closed || closed
	if g.held > 0 {
		g.share.bytes.Add(-g.held)
		g.held = 0
	}
}
