package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// maxWaiting limits the requests of one connection that have no reply yet.
const maxWaiting = 4096

// link is one connection through the proxy. It has two goroutines, one per direction, and run
// waits for both.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	once           sync.Once
	closed         chan struct{}
	// waiting are the delivered requests, oldest first.
	waiting chan delivered
}

// delivered is a request with the drop for its reply, or nil.
type delivered struct {
	request Request
	drop    *Drop
}

func newLink(p *Proxy, client, server net.Conn) *link {
	return &link{
		proxy: p, client: client, server: server,
		closed: make(chan struct{}), waiting: make(chan delivered, maxWaiting),
	}
}

func (l *link) run() {
	var replies sync.WaitGroup
	replies.Go(func() {
		defer l.cut()
		l.forwardReplies()
	})
	l.forwardRequests()
	l.cut()
	replies.Wait()
}

// cut ends both connections with RST.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.closed)
		reset(l.client)
		reset(l.server)
	})
}

func (l *link) forwardRequests() {
	r := bufio.NewReaderSize(l.client, 64<<10)
	var buf []byte
	for {
		burst := r.Buffered() > 0
		raw, request, err := readRequest(r, buf[:0])
		if err != nil || !l.pass(burst) {
			return
		}
		buf = raw
		if !silent(request) {
			d := l.proxy.marked(request)
			if !l.caught(d, request, false) {
				return
			}
			select {
			case l.waiting <- delivered{request, d}:
			case <-l.closed:
				return
			}
		}
		if _, err := l.server.Write(raw); err != nil {
			return
		}
	}
}

func (l *link) forwardReplies() {
	r := bufio.NewReaderSize(l.server, 64<<10)
	var buf []byte
	for {
		burst := r.Buffered() > 0
		raw, kind, err := readValue(r, buf[:0])
		if err != nil {
			return
		}
		buf = raw
		// A push message answers no request.
		if kind != '>' {
			select {
			case w := <-l.waiting:
				if w.drop != nil && w.drop.trap == nil {
					l.lose(w.drop)
					return
				}
				if !l.caught(w.drop, w.request, true) {
					return
				}
			default: // unrequested: a server that says why it hangs up
			}
		}
		if !l.pass(burst) {
			return
		}
		if _, err := l.client.Write(raw); err != nil {
			return
		}
	}
}

// lose discards the reply that was just read, and resets or mutes the connection.
func (l *link) lose(d *Drop) {
	close(d.done)
	if d.Mute {
		// The client may keep sending. It gets no answer until it gives up.
		<-l.closed
	}
}

// pass waits as the active faults demand, and returns false if the connection was cut in
// between. Data from the same burst as what was just forwarded is not delayed again: the
// simulated distance is long, but the line is not slow.
func (l *link) pass(burst bool) bool {
	if d := l.proxy.lag(); d > 0 && !burst {
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-l.closed:
			t.Stop()
			return false
		}
	}
	for {
		held := l.proxy.holding()
		if held == nil {
			return true
		}
		select {
		case <-held:
		case <-l.closed:
			return false
		}
	}
}
