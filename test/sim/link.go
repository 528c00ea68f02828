package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// link is the way of one machine, or one process of it, to Redis.
type link struct {
	redis *miniredis.Miniredis
	up    *link // of the machine; nil = this is one

	mu    sync.Mutex
	conns map[*conn]bool
	gone  bool          // for ever
	cut   bool          // connections are refused
	still chan struct{} // closed when what is sent arrives again; nil = it does
	lose  bool          // the next answer is lost
}

var errCut = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}

func newLink(redis *miniredis.Miniredis, up *link) *link {
	return &link{redis: redis, up: up, conns: map[*conn]bool{}}
}

func (l *link) dial(context.Context, string, string) (net.Conn, error) {
	if l.refuses() || l.up != nil && l.up.refuses() {
		return nil, errCut
	}
	raw, err := l.redis.Dial()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, of: []*link{l}}
	if l.up != nil {
		c.of = append(c.of, l.up)
	}
	for _, of := range c.of {
		of.mu.Lock()
		of.conns[c] = true
		of.mu.Unlock()
	}
	return c, nil
}

func (l *link) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone || l.cut
}

// set changes the state; reset ends the connections.
func (l *link) set(reset bool, change func()) {
	l.mu.Lock()
	change()
	var conns []*conn
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	if reset {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

func (l *link) kill()    { l.set(true, func() { l.gone = true }) }
func (l *link) refuse()  { l.set(true, func() { l.cut = true }) }
func (l *link) loseOne() { l.set(false, func() { l.lose = true }) }

// silence lets nothing through for a while, and breaks nothing.
func (l *link) silence() {
	l.set(false, func() {
		if l.still == nil {
			l.still = make(chan struct{})
		}
	})
}

func (l *link) heal() {
	l.set(false, func() {
		if l.cut, l.lose = false, false; l.still != nil {
			close(l.still)
			l.still = nil
		}
	})
}

// conn is a connection that its links can break.
type conn struct {
	net.Conn
	of   []*link
	once sync.Once

	mu     sync.Mutex
	read   time.Time
	closed chan struct{}
}

// pass waits while a link is silent.
func (c *conn) pass(deadline time.Time) error {
	for _, l := range c.of {
		l.mu.Lock()
		still := l.still
		l.mu.Unlock()
		if still == nil {
			continue
		}
		var late <-chan time.Time
		if !deadline.IsZero() {
			late = time.After(time.Until(deadline))
		}
		select {
		case <-still:
		case <-late:
			return os.ErrDeadlineExceeded
		case <-c.ended():
			return net.ErrClosed
		}
	}
	return nil
}

func (c *conn) ended() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = make(chan struct{})
	}
	return c.closed
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	c.mu.Lock()
	deadline := c.read
	c.mu.Unlock()
	if err := c.pass(deadline); err != nil {
		return 0, err
	}
	for _, l := range c.of {
		l.mu.Lock()
		lost := l.lose
		l.lose = false
		l.mu.Unlock()
		if lost {
			_ = c.Close()
			return 0, net.ErrClosed
		}
	}
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	deadline := c.read
	c.mu.Unlock()
	if err := c.pass(deadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.read = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.read = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.ended()) })
	for _, l := range c.of {
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}
	return c.Conn.Close()
}
