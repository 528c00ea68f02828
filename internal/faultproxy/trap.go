package faultproxy

import "sync"

// Trap catches one request on its way: the connection stands still, so that
// something can be done to either side at just this point.
type Trap struct {
	// Nth counts the requests that match from now on; 1, and 0 too, is the next.
	Nth int
	// Match chooses among requests; nil = those that run a script.
	Match func(Request) bool
	// Reply: it is caught when the server has carried it out, and before the client
	// knows; else before the server gets it.
	Reply bool

	caught chan *Caught
}

// Caught is a request that a trap holds. Pass or Cut has to be called.
type Caught struct {
	Request Request

	once sync.Once
	pass bool
	gone chan struct{}
}

// Pass lets it go on, also when who has sent it is gone by now.
func (c *Caught) Pass() { c.leave(true) }

// Cut ends its connection; what was caught goes nowhere.
func (c *Caught) Cut() { c.leave(false) }

func (c *Caught) leave(pass bool) {
	c.once.Do(func() {
		c.pass = pass
		close(c.gone)
	})
}

// Trap sets a trap. The channel tells what it has caught; it is closed without that
// when Heal takes the trap away.
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

// caught holds the link if d is a trap for this direction; false: it was cut.
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
