package rdb_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// impostor is a server that answers the same to whatever is asked, and hangs up then.
func impostor(t *testing.T, answer string) (addr string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_, _ = io.WriteString(conn, answer)
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// TestSentinels: sentinels that answer are not unreachable.
func TestSentinels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, says string
		password     bool
	}{
		"an unknown master": {"*-1\r\n", `know no master called "mymaster"`, false},
		"no password":       {"-NOAUTH Authentication required.\r\n", "the sentinels refuse the password", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := rdb.Open(rdb.Options{URL: "redis-sentinel://" + sentinel(t, c.answer) + "/mymaster", Namespace: "resque"})
			require.NoError(t, err)
			defer s.Close()                                                                 //nolint:errcheck // of a test
			for err = context.DeadlineExceeded; errors.Is(err, context.DeadlineExceeded); { // a busy machine answers late
				err = s.Read.Ping(t.Context()).Err()
			}
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.password, errors.Is(err, rdb.ErrSentinelPassword))
		})
	}
}

// sentinel returns the address of a server that answers each question about a master with answer.
func sentinel(t *testing.T, answer string) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					switch strings.ToLower(lines.Text()) {
					case "hello":
						_, _ = conn.Write([]byte("-ERR unknown command 'HELLO'\r\n"))
					case "client":
						_, _ = conn.Write([]byte("+OK\r\n"))
					case "sentinel":
						_, _ = conn.Write([]byte(answer))
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestCertificates: what a certificate is refused for does not heal by waiting, and says what to do.
func TestCertificates(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{TLS: true, Args: []string{"--tls-auth-clients", "yes"}})
	ca, err := rdb.ReadCA(server.CAFile)
	require.NoError(t, err)
	other := redistest.Start(t, redistest.Options{TLS: true})
	cert := func(of *redistest.Server) string {
		text, err := rdb.ReadCert(of.CAFile, of.KeyFile)
		require.NoError(t, err)
		return text
	}
	for name, c := range map[string]struct{ ca, cert, says string }{
		"an unknown CA":                   {"", "", "name the file of that CA with redis_ca_file"},
		"none of the client is presented": {ca, "", "name its files with redis_cert_file and redis_key_file"},
		"that of the client is unknown":   {ca, cert(other), "the server refuses the certificate of redis_cert_file (CN=redistest, valid until 20"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := rdb.Options{URL: server.URL(), Namespace: "resque", CA: c.ca, Cert: c.cert}
			s, err := rdb.Open(opts)
			require.NoError(t, err)
			defer s.Close() //nolint:errcheck // of a test
			err = s.Read.Ping(t.Context()).Err()
			for errors.Is(err, context.DeadlineExceeded) { // of a handshake, on a busy machine
				err = s.Read.Ping(t.Context()).Err()
			}
			require.ErrorContains(t, err, c.says)
			opts.CA, opts.Cert = ca, cert(server)
			require.NoError(t, s.Use(opts))
			require.NoError(t, s.Ping(t.Context()), "new connections use what was read again")
		})
	}
}

// silent returns the address of a server that answers nothing, and how many connections it has got.
func silent(t *testing.T) (addr string, asked *atomic.Int32) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	asked = new(atomic.Int32)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			asked.Add(1)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	return l.Addr().String(), asked
}

// TestCallerGaveUp: a call that ends with its context says so, and that Redis was silent.
func TestCallerGaveUp(t *testing.T) {
	t.Parallel()
	addr, _ := silent(t)
	s, err := rdb.Open(rdb.Options{URL: "redis://" + addr, Namespace: "resque"})
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // of a test
	for name, call := range map[string]func(ctx context.Context) error{
		"a command":                func(ctx context.Context) error { return s.Write.Incr(ctx, "n").Err() },
		"one that may be repeated": s.Ping,
		"one of a transaction": func(ctx context.Context) error {
			pipe := s.Write.TxPipeline()
			one := pipe.Incr(ctx, "n")
			_, _ = pipe.Exec(ctx)
			return one.Err()
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.True(t, rdb.Unreachable(err), name)
		require.False(t, rdb.Unexecuted(err), name)
	}
}

// TestSilentTLS: a port that says nothing to TLS, as a plain Redis does, is tried once, not four times.
func TestSilentTLS(t *testing.T) {
	t.Parallel()
	addr, asked := silent(t)
	s, err := rdb.Open(rdb.Options{URL: "rediss://" + addr, Namespace: "resque"})
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // of a test
	err = s.Read.Ping(t.Context()).Err()
	require.ErrorContains(t, err, "write redis:// instead of rediss://")
	require.True(t, rdb.Unexecuted(err) && rdb.Unreachable(err) && !rdb.Transient(err), "%v", err)
	require.EqualValues(t, 1, asked.Load())
}

// TestTLSByScheme: a scheme in capitals means TLS, too; nothing may be sent in clear text.
func TestTLSByScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"REDISS", "Rediss-Sentinel", "Rediss-Cluster"} {
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		first := make(chan byte, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				close(first)
				return
			}
			one := make([]byte, 1)
			_, _ = conn.Read(one)
			first <- one[0]
			_ = conn.Close()
		}()
		require.True(t, rdb.OverTLS(scheme+"://"+l.Addr().String()), scheme)
		s, err := rdb.Open(rdb.Options{URL: scheme + "://u:secret@" + l.Addr().String() + "/0", Namespace: "{resque}"})
		require.NoError(t, err, scheme)
		require.Error(t, s.Read.Ping(t.Context()).Err(), scheme)
		require.EqualValues(t, 0x16, <-first, "%s: the first byte of a TLS handshake", scheme)
		require.NoError(t, s.Close())
		require.NoError(t, l.Close())
	}
}

// TestNoRedis: what answers is not Redis, or not in the way that the URL says. The error
// says what it looks like, and it may be gone with the next try.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	plain, secure := redistest.Shared(t), redistest.Start(t, redistest.Options{TLS: true})
	host := func(text string) string {
		u, err := url.Parse(text)
		require.NoError(t, err)
		return u.Host
	}
	for name, c := range map[string]struct{ url, says string }{
		"TLS where a plain server is":    {"rediss://" + host(plain.URL()), "write redis:// instead of rediss://"},
		"plain where TLS is":             {"redis://" + host(secure.URL()), "write rediss:// instead of redis://"},
		"plain to an alert of TLS":       {"redis://" + impostor(t, "\x15\x03\x01\x00\x02\x02\x46"), "it speaks TLS: write rediss://"},
		"a server that hangs up":         {"redis://" + impostor(t, ""), "it hung up without an answer"},
		"TLS to one that hangs up":       {"rediss://" + impostor(t, ""), "write redis:// instead of rediss://"},
		"TLS to a plain one":             {"rediss://" + impostor(t, "-ERR unknown command\r\n"), "answers as a plain Redis does"},
		"HTTP":                           {"redis://" + impostor(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), "it speaks HTTP"},
		"SSH":                            {"redis://" + impostor(t, "SSH-2.0-OpenSSH_9.2p1\r\n"), "it speaks SSH"},
		"a billion values":               {"redis://" + impostor(t, "*1000000000\r\n"), "1000000000 values"},
		"a billion values, in a cluster": {"redis-cluster://" + impostor(t, "*1000000000\r\n"), "1000000000 values"},
		"a billion values of a sentinel": {"redis-sentinel://" + impostor(t, "*1000000000\r\n") + "/mymaster", ""},
		"a text of 9 GB":                 {"redis://" + impostor(t, "$9000000000\r\nx"), "a text of 9000000000 bytes"},
		"a line of 2 MB":                 {"redis://" + impostor(t, "+"+strings.Repeat("x", 2<<20)), "a line of more than 1048576 bytes"},
		"deep values":                    {"redis://" + impostor(t, strings.Repeat("*1\r\n", 1000)), "nested deeper than 32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space := "resque"
			if strings.HasPrefix(c.url, "redis-cluster") {
				space = "{resque}"
			}
			s, err := rdb.Open(rdb.Options{URL: c.url, Namespace: space})
			require.NoError(t, err)
			defer s.Close() //nolint:errcheck // of a test
			ctx, cancel := context.WithCancel(t.Context())
			var told error
			err = s.WaitReady(ctx, rdb.Rehearsal{}, func(err error, _ time.Duration) {
				told = err
				cancel()
			})
			require.ErrorIs(t, err, context.Canceled, "it goes on waiting")
			require.True(t, rdb.Unreachable(told), "%v", told)
			require.ErrorContains(t, told, c.says)
		})
	}
}
