// Package faultproxy stands between a program and its Redis and makes the
// network fail as networks do: slow, cut, half open, or with the one reply lost
// whose request was carried out.
//
// It reads RESP2 and RESP3 far enough to know where a request and its reply
// begin and end, and forwards their bytes unchanged. TLS and commands with no or
// several replies (SUBSCRIBE in RESP2, MONITOR, CLIENT REPLY) are not for it.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds a connection to the server.
const dialTimeout = 5 * time.Second

// Config says between whom the proxy stands.
type Config struct {
	// Network and Address are where the server listens: "tcp" or "unix".
	Network, Address string
	// Seed makes the jitter reproducible.
	Seed uint64
}

// Proxy is one listener on loopback, for one party: its faults hit all who
// connect to it. Run serves it; the faults may be set at any time.
type Proxy struct {
	listener net.Listener

	mu      sync.Mutex
	config  Config
	rand    *rand.Rand
	delay   time.Duration
	jitter  time.Duration
	refuse  bool
	held    chan struct{} // closed when the hold ends; nil: none
	links   map[*link]struct{}
	drops   []*Drop
	closing bool

	done   sync.WaitGroup
	counts struct{ connections, requests, scripts, replies, dropped, cut atomic.Int64 }
}

// Counts is what has gone through a proxy so far.
type Counts struct {
	Connections, Requests, Scripts, Replies, Dropped, Cut int64
}

// Listen opens the proxy's port. Connections wait in it until Run serves them.
func Listen(c Config) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	return &Proxy{
		listener: l, config: c, links: map[*link]struct{}{}, rand: rand.New(rand.NewPCG(c.Seed, 0)),
	}, nil
}

// Addr is the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Run serves until ctx ends and every connection is closed.
func (p *Proxy) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.listener.Close() })
	defer stop()
	defer p.done.Wait()
	defer p.end()
	for {
		conn, err := p.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("fault proxy: %w", err)
		case err != nil:
			continue // a connection that was gone again
		}
		p.done.Go(func() { p.serve(conn) })
	}
}

// Counts tells what has gone through so far.
func (p *Proxy) Counts() Counts {
	return Counts{
		Connections: p.counts.connections.Load(), Requests: p.counts.requests.Load(), Scripts: p.counts.scripts.Load(),
		Replies: p.counts.replies.Load(), Dropped: p.counts.dropped.Load(), Cut: p.counts.cut.Load(),
	}
}

// serve carries one connection until either side or a fault ends it.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	network, address, refused := p.config.Network, p.config.Address, p.refuse || p.closing
	p.mu.Unlock()
	p.counts.connections.Add(1)
	if refused {
		reset(client)
		return
	}
	server, err := net.DialTimeout(network, address, dialTimeout)
	if err != nil {
		// As a refused connection looks through a load balancer.
		reset(client)
		return
	}
	l := newLink(p, client, server)
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		l.cut()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) end() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.Release()
	p.Cut()
}

// lag is how long what has just been read waits before it is passed on.
func (p *Proxy) lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.delay
	if p.jitter > 0 {
		d += time.Duration(p.rand.Int64N(int64(p.jitter)))
	}
	return d
}

// reset closes a connection with RST, as a host that knows nothing of it does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
