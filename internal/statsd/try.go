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

// tryFor is how long Try waits for an ICMP error that says nothing listens.
const tryFor = 300 * time.Millisecond

// Try looks up the host, sends it one counter, config_check, and returns the address. Statsd never
// answers, so no error means only that nothing has refused the datagram.
func Try(ctx context.Context, c Config) (addr string, err error) {
	if c.Port == 0 {
		c.Port = 8125
	}
	s := &sender{host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port))}
	if err := s.resolve(ctx); err != nil {
		return "", err
	}
	to := s.addr.Load()
	// Only a connected UDP socket receives ICMP errors.
	conn, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // the datagram is sent already
	name := (&Client{key: strings.Trim(clean(c.Key), ".")}).name("config_check", "")
	if _, err := fmt.Fprintf(conn, "%s:1|c", name); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(tryFor)) // cannot fail on an open socket
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return to.String(), nil
}
