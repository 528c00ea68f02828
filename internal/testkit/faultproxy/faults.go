package faultproxy

import "time"

// SetTarget sends new connections to another server. Existing ones keep theirs until they are
// cut.
func (p *Proxy) SetTarget(network, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config.Network, p.config.Address = network, address
}

// SetDelay delays every request and every reply by delay plus a random part of jitter. Zeros
// end the delay.
func (p *Proxy) SetDelay(delay, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.jitter = delay, jitter
}

// Cut resets every connection, as a restarted firewall does, and returns how many there were.
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
	return len(links)
}

// Refuse makes new connections fail until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Hold stops forwarding in both directions and leaves the connections open, like the half-open
// connections of a partition. After Release, what was sent meanwhile arrives if its connection
// still exists.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release undoes Hold.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Heal ends every fault. A request caught by a Trap stays caught until Pass or Cut is called.
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

// holding returns a channel that is closed when the hold ends; nil = not held.
func (p *Proxy) holding() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		return nil
	}
	return p.held
}

// Drop describes a reply to lose.
type Drop struct {
	// Nth selects among the matching requests from now on; 0 and 1 are the next one.
	Nth int
	// Match selects requests; nil means those that run a script.
	Match func(Request) bool
	// Mute leaves the connection open and silent, so that the client has to time out. Otherwise
	// it is reset as soon as the reply has been discarded.
	Mute bool

	seen int
	done chan struct{}
	trap *Trap
}

// DropReply loses one reply: the server receives and executes the request and answers, but the
// answer is discarded. The channel is closed when that has happened.
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

// marked counts a request and returns the drop for its reply, or nil.
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
