package faultproxy

import "time"

// SetTarget sends new connections to another server; those that exist stay
// where they are until they are cut.
func (p *Proxy) SetTarget(network, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config.Network, p.config.Address = network, address
}

// SetDelay holds up every request and every reply by delay, and by a random part
// of jitter besides. Zeros end it.
func (p *Proxy) SetDelay(delay, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.jitter = delay, jitter
}

// Cut resets every connection, as a firewall that was restarted does, and
// returns how many.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
	p.counts.cut.Add(int64(len(links)))
	return len(links)
}

// Refuse makes new connections fail until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Hold stops forwarding in both directions and leaves the connections open: the
// half-open connections of a partition. What was sent meanwhile arrives when
// Release ends it, if its connection still exists then.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release ends a Hold.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Heal ends every fault. Who is caught by a Trap stays so until it is let go.
func (p *Proxy) Heal() {
	p.SetDelay(0, 0)
	p.Refuse(false)
	p.Release()
	p.mu.Lock()
	for _, d := range p.drops {
		if d.trap != nil {
			close(d.trap.caught)
		}
	}
	p.drops = nil
	p.mu.Unlock()
}

// holding returns what closes when the hold ends, nil when there is none.
func (p *Proxy) holding() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		return nil
	}
	return p.held
}

// Drop is a reply that is to be lost.
type Drop struct {
	// Nth counts the requests that match from now on; 1, and 0 too, is the next.
	Nth int
	// Match chooses among requests; nil = those that run a script.
	Match func(Request) bool
	// Mute leaves the connection open and silent for ever, so that the client has
	// to time out; else it is reset as soon as the reply was swallowed.
	Mute bool

	seen int
	done chan struct{}
	trap *Trap
}

// DropReply loses one reply: the request is delivered, the server carries it out
// and answers, and the answer goes nowhere. The channel closes when it happened.
func (p *Proxy) DropReply(d Drop) <-chan struct{} {
	if d.Match == nil {
		d.Match = Request.Script
	}
	d.Nth = max(d.Nth, 1)
	d.done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, &d)
	return d.done
}

// marked counts a request and returns the drop that is meant for its reply.
func (p *Proxy) marked(q Request) *Drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, d := range p.drops {
		if !d.Match(q) {
			continue
		}
		if d.seen++; d.seen >= d.Nth {
			p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			return d
		}
	}
	return nil
}
