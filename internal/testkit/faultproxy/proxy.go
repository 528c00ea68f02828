// Package faultproxy is a proxy between a program and its Redis that simulates network faults:
// delays, cut and half-open connections, and lost replies to requests that were executed.
//
// It parses RESP2 and RESP3 to find where requests and replies begin and end, and forwards
// their bytes unchanged. It does not support TLS and commands with no or several replies
// (SUBSCRIBE in RESP2, MONITOR, CLIENT REPLY).
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

// dialTimeout limits the time to connect to the server.
const dialTimeout = 5 * time.Second

// Config configures a Proxy.
type Config struct {
	// Network and Address are the server's; Network is "tcp" or "unix".
	Network, Address string
	// Seed makes the jitter reproducible.
	Seed uint64
}

// Proxy is a listener on loopback. Its faults affect all its clients. Run serves it; faults may
// be set at any time.
type Proxy struct {
	listener net.Listener

	mu      sync.Mutex
	config  Config
	rand    *rand.Rand
	delay   time.Duration
	jitter  time.Duration
	refuse  bool
	held    chan struct{} // closed when the hold ends; nil = not held
	links   map[*link]struct{}
	drops   []*Drop
	closing bool

	done sync.WaitGroup
	// Connections counts all connections, refused ones too.
	Connections atomic.Int64
}

// Listen opens the proxy's port. Connections wait until Run serves them.
func Listen(c Config) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	return &Proxy{
		listener: l, config: c, links: map[*link]struct{}{}, rand: rand.New(rand.NewPCG(c.Seed, 0)),
	}, nil
}

// Addr returns the host and port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Run serves until ctx ends, and returns when every connection is closed.
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
			continue // a connection that was already gone
		}
		p.done.Go(func() { p.serve(conn) })
	}
}

// serve forwards one connection until either side or a fault ends it.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	network, address, refused := p.config.Network, p.config.Address, p.refuse || p.closing
	p.mu.Unlock()
	p.Connections.Add(1)
	if refused {
		reset(client)
		return
	}
	server, err := net.DialTimeout(network, address, dialTimeout)
	if err != nil {
		// A refused connection looks like this behind a load balancer.
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

// lag returns how long to delay the data that was just read.
func (p *Proxy) lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.delay
	if p.jitter > 0 {
		d += time.Duration(p.rand.Int64N(int64(p.jitter)))
	}
	return d
}

// reset closes a connection with RST, as a host does for an unknown connection.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
