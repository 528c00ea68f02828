// Package redistest gives tests a Redis of their own: a real redis-server on loopback, shared by
// the tests of one binary or private to one test, or a miniredis with the same interface. No
// server outlives the test binary, however that ends, without help from TestMain.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// Options configure a private server. By default it is on loopback, without persistence and
// password.
type Options struct {
	// Args are redis-server arguments: "--maxmemory", "10mb".
	Args []string
	// TLS makes the TCP port speak TLS with a certificate for this test; see TLSConfig and
	// CAFile.
	TLS bool
	// Users are ACL rules, each as in Redis's users.acl without the word "user":
	// "alice on >secret ~* &* +@all". Add "default off" to demand a login.
	Users []string
	// Clock allows StepClock to move the server's wall clock. The test is skipped if there is
	// no C compiler.
	Clock bool
}

// Server is a Redis for tests.
type Server struct {
	// Addr is the host and port of the TCP listener.
	Addr string
	// Socket is the path of the unix socket; empty for a miniredis.
	Socket string
	// CAFile is the certificate to trust, and TLSConfig trusts it; only with TLS. A client may
	// present it, with KeyFile.
	CAFile    string
	KeyFile   string
	TLSConfig *tls.Config
	// Mini is the miniredis of this server; nil for a real one.
	Mini *miniredis.Miniredis

	tb      testing.TB
	dir     string
	options Options
	port    *port
	ahead   time.Duration // of the server's clock
	counter *redis.Client // of Commands

	mu      sync.Mutex
	process *devredis.Process
}

var shared struct {
	sync.Mutex
	server *Server
	users  int
}

// Shared returns the server shared by this binary's tests. Each test uses its own Namespace and
// never flushes. The server stops when the last test that called Shared has ended.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	testlevel.Integration(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = start(tb, Options{})
	}
	shared.users++
	tb.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			shared.server.discard()
			shared.server = nil
		}
	})
	return shared.server
}

// Start returns a server for this test alone, which may be killed and restarted.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	testlevel.Integration(tb)
	needs(tb, o)
	s := start(tb, o)
	tb.Cleanup(s.discard)
	return s
}

// Mini returns a miniredis for this test alone. Its clock for expiries advances only by
// s.Mini.FastForward.
func Mini(tb testing.TB) *Server {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		tb.Fatalf("miniredis: %v", err)
	}
	tb.Cleanup(m.Close)
	return &Server{Addr: m.Addr(), Mini: m, tb: tb}
}

// Both runs a test against the shared redis-server and against a miniredis; in unit tests only
// against the latter.
func Both(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		test(t, Shared(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, Mini(t))
	})
}

var namespaces atomic.Int64

// Namespace returns a namespace that no other test uses.
func Namespace(tb testing.TB) string {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("t%d-%d-%s", os.Getpid(), namespaces.Add(1), name[:min(len(name), 40)])
}

// URL returns the server's URL for a configuration.
func (s *Server) URL() string {
	scheme := "redis"
	if s.options.TLS {
		scheme = "rediss"
	}
	return fmt.Sprintf("%s://%s/0", scheme, s.Addr)
}

// URLAs returns the URL with a login.
func (s *Server) URLAs(user, password string) string {
	u, err := url.Parse(s.URL())
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// SocketURL returns the URL of the server's unix socket.
func (s *Server) SocketURL() string { return "unix://" + s.Socket }

// Client returns a client that is closed after the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	o := &redis.Options{
		Addr:                     s.Addr,
		TLSConfig:                s.TLSConfig,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// A command that takes long on a busy machine must not be repeated.
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	}
	if s.Socket != "" {
		o.Network, o.Addr, o.TLSConfig = "unix", s.Socket, nil
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Commands returns how many commands the server has executed, including those of scripts. It
// needs a server of Start: other tests use the shared one.
func (s *Server) Commands(tb testing.TB) int {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if s == shared.server {
		tb.Fatal("redistest: the shared server counts the commands of other tests, too")
	}
	if s.counter == nil { // a new connection costs commands
		s.counter = s.Client(s.tb)
	}
	text, err := s.counter.Info(tb.Context(), "stats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "total_commands_processed:")
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		tb.Fatalf("redistest: the server does not say how many commands it ran: %v", err)
	}
	return n
}

// Kill ends the server like a crash. Data that is not on disk is lost.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end((*devredis.Process).Kill)
}

// Stop shuts the server down normally: it saves if it is configured to.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end((*devredis.Process).Stop)
}

// Restart starts the server again with the same port and directory. A running server is killed
// first.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end((*devredis.Process).Kill)
	if s.Mini != nil {
		if err := s.Mini.Restart(); err != nil {
			s.tb.Errorf("restart miniredis: %v", err)
		}
		return
	}
	if err := s.launch(context.Background()); err != nil {
		s.tb.Errorf("restart %s: %v", s.Addr, err)
	}
}

// Hang stops the server's process: connections stay open and get no answers. Resume undoes Hang.
func (s *Server) Hang() { s.signal(syscall.SIGSTOP) }

// Resume undoes Hang.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// PID returns the process id of a real server that is running.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.tb.Errorf("%s to %s: no redis-server is running", sig, s.Addr)
		return
	}
	if err := s.process.Signal(sig); err != nil {
		s.tb.Errorf("%s to %s: %v", sig, s.Addr, err)
	}
}

func (s *Server) end(how func(*devredis.Process)) {
	if s.Mini != nil {
		s.Mini.Close()
		return
	}
	if s.process != nil {
		how(s.process)
		s.process = nil
	}
}

func (s *Server) discard() {
	s.Kill()
	s.port.giveBack()
	_ = os.RemoveAll(s.dir)
}

func start(tb testing.TB, o Options) *Server {
	tb.Helper()
	// Not tb.TempDir: a unix socket's path is limited to 107 bytes, and the shared server
	// outlives the test that starts it.
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: dir, options: o, Socket: filepath.Join(dir, "redis.sock")}
	if o.TLS {
		if err := s.makeCertificate(); err != nil {
			tb.Fatalf("certificate for redis-server: %v", err)
		}
	}
	if o.Clock {
		s.makeClock(tb)
	}
	for range 20 {
		s.port.giveBack()
		s.port = takePort()
		s.Addr = s.port.addr
		if err = s.launch(tb.Context()); !errors.Is(err, devredis.ErrPortTaken) {
			break
		}
	}
	if err != nil {
		s.port.giveBack()
		_ = os.RemoveAll(dir)
		tb.Fatal(err)
	}
	return s
}

func (s *Server) launch(ctx context.Context) error {
	binary, err := serverBinary()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	args := []string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}
	if s.options.TLS {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-auth-clients", "no",
			"--tls-cert-file", s.CAFile, "--tls-key-file", s.KeyFile, "--tls-ca-cert-file", s.CAFile)
	} else {
		args = append(args, "--port", port)
	}
	for _, user := range s.options.Users {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	if s.options.Clock {
		args = append([]string{"LD_PRELOAD=" + s.clockFile() + ".so", "REDISTEST_CLOCK=" + s.clockFile(), binary}, args...)
		binary = "/usr/bin/env"
	}
	s.process, err = devredis.Launch(ctx, devredis.ProcessConfig{
		Binary: binary, Dir: s.dir, Socket: s.Socket, Args: append(args, s.options.Args...),
	})
	return err
}

// port is a TCP port on loopback that no other test of this machine takes. It stays reserved
// while no server listens on it, so it is still free after a Kill.
type port struct {
	addr string
	sign net.Listener
}

// takePort picks a free port below the kernel's range for outgoing connections. Its reservation
// ends with this program.
func takePort() *port {
	for {
		number := strconv.Itoa(15000 + rand.IntN(15000))
		sign, err := net.Listen("unix", "@redistest-"+number) // the name is in no directory
		if err != nil {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", number)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return &port{addr, sign}
		}
		_ = sign.Close()
	}
}

func (p *port) giveBack() {
	if p != nil {
		_ = p.sign.Close()
	}
}

var unique atomic.Int64

// Unique returns a text that no other call in this process returns, for use as a token.
func Unique() string { return strconv.FormatInt(unique.Add(1), 10) }
