package statsd

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// retryEvery is how often a host that does not resolve is looked up again,
	// refreshEvery how often one that does.
	retryEvery   = 5 * time.Second
	refreshEvery = time.Minute
)

// sender writes datagrams to a host that may not resolve yet. It looks the host up on its own
// goroutine: a look-up may take seconds, and the library sends under the lock that every
// counting thread needs.
type sender struct {
	host string // with port
	log  *zap.Logger
	conn net.PacketConn
	addr atomic.Pointer[net.UDPAddr]

	stop context.CancelFunc
	done sync.WaitGroup
}

func newSender(host string, log *zap.Logger) (*sender, error) {
	conn, err := net.ListenPacket("udp", ":0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &sender{host: host, log: log, conn: conn, stop: stop}
	name, _, _ := net.SplitHostPort(host)
	if net.ParseIP(name) != nil {
		_ = s.resolve(ctx)
		return s, nil
	}
	s.done.Go(func() { s.run(ctx) })
	return s, nil
}

// Send drops the data while the address is unknown.
func (s *sender) Send(data []byte) (int, error) {
	addr := s.addr.Load()
	if addr == nil {
		return len(data), nil
	}
	return s.conn.WriteTo(data, addr)
}

func (s *sender) Close() error {
	s.stop()
	s.done.Wait()
	return s.conn.Close()
}

func (s *sender) run(ctx context.Context) {
	warned := false
	for {
		err := s.resolve(ctx)
		wait := refreshEvery
		switch {
		case err == nil && warned:
			s.log.Info("statsd host resolves again", zap.String("host", s.host))
			warned = false
		case err != nil && ctx.Err() == nil:
			wait = retryEvery
			if !warned {
				s.log.Warn("statsd host does not resolve; trying again in the background",
					zap.String("host", s.host), zap.Error(err))
				warned = true
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// resolve keeps the old address if the host is no longer found.
func (s *sender) resolve(ctx context.Context) error {
	name, port, err := net.SplitHostPort(s.host)
	if err != nil {
		return err
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	if err != nil {
		return err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return err
	}
	best := addrs[0]
	for _, addr := range addrs {
		// "localhost" may be both; statsd servers often listen on IPv4 only.
		if addr.IP.To4() != nil {
			best = addr
			break
		}
	}
	s.addr.Store(&net.UDPAddr{IP: best.IP, Zone: best.Zone, Port: number})
	return nil
}
