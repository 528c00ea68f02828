package faultproxy

import "sync"

// Trap catches one request and suspends its connection, so that a test can disturb either side
// at exactly this point.
type Trap struct {
	// Nth selects among the matching requests from now on; 0 and 1 are the next one.
	Nth int
	// Match selects requests; nil means those that run a script.
	Match func(Request) bool
	// Reply catches the request after the server has executed it and before the client gets the
	// reply. Otherwise it is caught before the server gets it.
	Reply bool

	caught chan *Caught
}

// Caught is a request held by a trap. Pass or Cut must be called.
type Caught struct {
	Request Request

	once sync.Once
	pass bool
	gone chan struct{}
}

// Pass forwards the request, even if its sender is gone.
func (c *Caught) Pass() { c.leave(true) }

// Cut ends the connection and discards what was caught.
func (c *Caught) Cut() { c.leave(false) }

func (c *Caught) leave(pass bool) {
	c.once.Do(func() {
		c.pass = pass
		close(c.gone)
	})
}

// Trap sets a trap. The returned channel delivers the caught request. Heal removes the trap and
// closes the channel without a request.
func (p *Proxy) Trap(t Trap) <-chan *Caught {
	t.caught = make(chan *Caught, 1)
	if t.Match == nil {
		t.Match = Request.Script
	}
	d := Drop{Nth: max(t.Nth, 1), Match: t.Match, done: make(chan struct{}), trap: &t}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, &d)
	return t.caught
}

// caught holds the link if d is a trap for this direction. It returns false if the connection
// was cut.
func (l *link) caught(d *Drop, q Request, reply bool) bool {
	if d == nil || d.trap == nil || d.trap.Reply != reply {
		return true
	}
	c := &Caught{Request: q, gone: make(chan struct{})}
	d.trap.caught <- c
	select {
	case <-c.gone:
		return c.pass
	case <-l.closed:
		return false
	}
}
