package rdb

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns the dial function of a client: over TLS unless conf is nil, and measured, so that
// answers to all clients of share stay within its memory limit.
func dialer(conf *tls.Config, share *share) dialFunc {
	d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if own, ok := conn.LocalAddr().(*net.TCPAddr); ok && !own.IP.IsLoopback() {
			address := own.IP.String()
			share.own.Store(&address)
		}
		if conf != nil {
			if conn, err = handshake(ctx, conn, share.trust(conf), network, addr); err != nil {
				return nil, err
			}
		}
		return &measuredConn{Conn: conn, gauge: gauge{share: share}, plain: conf == nil && network != "unix"}, nil
	}
}

// Unmeasured returns a connection of a client without the limits for answers, for one that has no end.
func Unmeasured(c net.Conn) net.Conn {
	if measured, ok := c.(*measuredConn); ok {
		return measured.Conn
	}
	return c
}

// opHandshake is the Op of a failed handshake; the library would repeat a "dial" that timed out.
const opHandshake = "TLS handshake"

// handshake turns a connection into TLS or closes it; if it fails, no command was sent. conf belongs
// to this connection alone.
func handshake(ctx context.Context, conn net.Conn, conf *tls.Config, network, addr string) (net.Conn, error) {
	if conf.ServerName == "" {
		conf.ServerName = addr
		if host, _, err := net.SplitHostPort(addr); err == nil {
			conf.ServerName = host
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var wants error // why the server may reject the client, if it asks for a certificate
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(conf.Certificates) == 0 {
			wants = errUncertified
			return &tls.Certificate{}, nil
		}
		own := &conf.Certificates[0]
		wants = fmt.Errorf("the server refuses the certificate of redis_cert_file (%s, valid until %s); tls-ca-cert-file of Redis must have its CA",
			own.Leaf.Subject, own.Leaf.NotAfter.UTC().Format(time.DateTime+" UTC"))
		return own, nil
	}
	secure := tls.Client(conn, conf)
	err := secure.HandshakeContext(ctx)
	switch {
	case err == nil && wants != nil:
		return &doubted{Conn: secure, why: wants.Error()}, nil
	case err == nil:
		return secure, nil
	}
	_ = conn.Close()
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return nil, fmt.Errorf("%w; if the certificate is from a CA of your own, name the file of that CA with redis_ca_file", err)
	case wants != nil:
		return nil, fmt.Errorf("%w: %w", wants, err)
	case errors.As(err, &record):
		if looks := looksLike(record.RecordHeader[:]); looks != "" {
			err = fmt.Errorf("%w: it answers as %s does; if this port does not speak TLS, write redis:// instead of rediss://", err, looks)
		} else {
			err = fmt.Errorf("%w; if this port does not speak TLS, write redis:// instead of rediss://", err)
		}
	case silent(err) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no TLS with this server: %w; if its port does not speak TLS, write redis:// instead of rediss://", err)
	default:
		return nil, err // a bad certificate, say, which waiting does not repair
	}
	return nil, &net.OpError{Op: opHandshake, Net: network, Addr: conn.RemoteAddr(), Err: err}
}

var errUncertified = errors.New("the server wants a certificate of the client: name its files with redis_cert_file and redis_key_file, or set tls-auth-clients of Redis to no")

// doubted is a connection to a server that asked for a client certificate. Servers reject it only
// after the handshake.
type doubted struct {
	net.Conn
	why   string // the server may reject the client
	heard atomic.Bool
}

func (c *doubted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, c.explain(err)
}

func (c *doubted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *doubted) explain(err error) error {
	if refused, ok := errors.AsType[*net.OpError](err); ok && !c.heard.Load() && !refused.Timeout() {
		return &hungUp{err, c.why}
	}
	return err
}

// silent reports whether err is the end of a connection without any answer.
func silent(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// looksLike names the protocol of an answer that is not Redis's; "" = unknown.
func looksLike(answer []byte) string {
	switch {
	case len(answer) >= 2 && answer[0] >= 0x14 && answer[0] <= 0x17 && answer[1] == 3:
		return "TLS"
	case bytes.HasPrefix(answer, []byte("HTTP")):
		return "HTTP"
	case bytes.HasPrefix(answer, []byte("SSH-")):
		return "SSH"
	case bytes.HasPrefix(answer, []byte("-ERR")), bytes.HasPrefix(answer, []byte("-NOAU")), bytes.HasPrefix(answer, []byte("-DENI")):
		return "a plain Redis"
	}
	return ""
}

// measuredConn measures answers as they arrive. An answer that is too large or not from Redis ends
// the connection before the library allocates memory for it.
type measuredConn struct {
	net.Conn
	gauge gauge
	plain bool // over TCP, without TLS
	heard bool
	err   error
}

// Read must not be called concurrently.
func (c *measuredConn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		if bad := c.gauge.take(p[:n]); bad != nil {
			if looks := looksLike(p[:n]); !c.heard && looks != "" {
				bad = fmt.Errorf("it speaks %s", looks)
				if looks == "TLS" {
					bad = fmt.Errorf("%w: write rediss:// instead of redis://", bad)
				}
			}
			c.err = fmt.Errorf("%w: %w", errForeign, bad)
			return 0, c.err
		}
		c.heard = true
	}
	if err != nil && !c.heard && c.plain && silent(err) {
		err = &hungUp{err, "it hung up without an answer, as a port does that expects TLS (then write rediss:// instead of redis://), or a proxy with no server behind it"}
	}
	return n, err
}

// Close returns the answer's part of the share.
func (c *measuredConn) Close() error {
	c.gauge.forget(true)
	return c.Conn.Close()
}

func (c *measuredConn) SyscallConn() (syscall.RawConn, error) {
	if inner, ok := c.Conn.(syscall.Conn); ok {
		return inner.SyscallConn()
	}
	return unchecked{}, nil
}

// hungUp is the end of a connection without any answer, and what that means.
type hungUp struct {
	err error
	why string
}

func (h *hungUp) Error() string { return h.why + ": " + h.err.Error() }

// Unwrap returns a slice, not an error, because the library unwraps a single error on a new
// connection.
func (h *hungUp) Unwrap() []error { return []error{h.err} }
