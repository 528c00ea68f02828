package statsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// tryFor is how long Try waits for a host to say that nothing listens.
const tryFor = 300 * time.Millisecond

// Try looks up the host and sends one datagram, a counter called config_check. It returns the
// address. Statsd never answers, so no error means only that nothing has refused it.
func Try(ctx context.Context, c Config) (addr string, err error) {
	if c.Port == 0 {
		c.Port = 8125
	}
	s := &sender{host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port))}
	if err := s.resolve(ctx); err != nil {
		return "", err
	}
	to := s.addr.Load()
	// A socket that is bound to one address is told what comes back from there.
	conn, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // a datagram is gone already
	name := (&Client{key: strings.Trim(clean(c.Key), ".")}).name("config_check", "")
	if _, err := fmt.Fprintf(conn, "%s:1|c", name); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(tryFor)) // of a socket that is open
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return to.String(), nil
}
