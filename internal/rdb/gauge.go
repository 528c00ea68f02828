package rdb

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Bounds of what a server may answer. The library makes room for whatever an answer says
// about its own size.
const (
	// maxBulk is the longest text: the longest value that Redis takes unless it is
	// told otherwise, and some room for what a record has besides.
	maxBulk = 513 << 20
	// maxShare is what the texts of all answers may hold together that are under way to
	// one Client.
	maxShare = 1 << 30
	// maxElements is how many values there may be in one answer.
	maxElements = 1 << 22
	// maxDepth is how deep they may be nested.
	maxDepth = 32
	// maxLine bounds what stands in one line: errors, numbers, lengths.
	maxLine = 1 << 20
	// smallAnswer is what an answer may hold before it is counted among the others.
	smallAnswer = 1 << 20
)

// errForeign: what the server sends is not an answer of Redis, or no reasonable one.
var errForeign = errors.New("the server's answer is refused")

// share is how many bytes are under way in large answers to all connections of a Client.
// Beside that it is what else they have in common: tls has the
// certificates of new connections, see credentials; own is the address of this machine, nil while it is not known.
type share struct {
	bytes atomic.Int64
	tls   atomic.Pointer[tls.Config]
	own   atomic.Pointer[string]
}

// trust returns conf with the certificates that count now.
func (s *share) trust(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	now := s.tls.Load()
	conf.RootCAs, conf.Certificates = now.RootCAs, now.Certificates
	return conf
}

// gauge follows the answers on a connection, RESP2 or RESP3, byte by byte but for the
// texts, over which it steps.
type gauge struct {
	share *share
	// The line that is under way: its type and length so far, and the number in it.
	kind     byte
	line     int
	number   int64
	digits   int
	negative bool
	// skip is how much of a text is still to come, with its end of line.
	skip int64
	// left are, of each aggregate that is open, the values still to come.
	left  [maxDepth]int64
	depth int
	// Of the answer under way: its values, and the bytes of its texts.
	elements, bytes int64

	mu sync.Mutex
	// held is how many of the bytes count in share. A connection may be closed while it
	// is read from.
	held   int64
	closed bool
}

// take follows a part of the stream. After an error nothing can be told of what comes.
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

// read takes in a part of a line.
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

// begin is called at the end of a line.
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
			n++ // what it is an attribute of
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

// value is called at the end of a value.
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

// count counts the bytes of a text of this answer.
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

// forget gives back what the answer has of the share; with closed none gets any more.
func (g *gauge) forget(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = g.closed || closed
	if g.held > 0 {
		g.share.bytes.Add(-g.held)
		g.held = 0
	}
}
