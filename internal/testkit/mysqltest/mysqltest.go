// Package mysqltest gives tests a MariaDB of their own: a fresh data directory in a temporary
// directory, on a unix socket, with settings for speed instead of durability. No server outlives
// its program, however that ends. It installs nothing: if MariaDB is missing, the error names
// the packages. Package pgtest does the same for PostgreSQL.
package mysqltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/resqued/resqued/internal/testkit/dbtest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// ErrMissing reports that MariaDB's programs are not installed.
var ErrMissing = errors.New("MariaDB is missing (mariadbd and mariadb-install-db, on PATH or in /usr/sbin and /usr/bin): apt-get install mariadb-server-core mariadb-client-core")

const database = "test"

var kind = dbtest.Kind{Name: "MariaDB", Prefix: "mysqltest", Users: []string{"mysql", "nobody"}, Crash: "KILL", Patience: time.Minute, Ready: ready}

// Options configure a server.
type Options struct {
	// Settings are options of the server: "innodb_buffer_pool_size=256M".
	Settings []string
	// Env is added to the server's environment: "TZ=UTC".
	Env []string
	// Durable makes each commit wait for the disk, and has changed pages written twice.
	Durable bool
}

// Server is a running MariaDB.
type Server struct{ *dbtest.Server }

// Start returns a server that is stopped after the test. The test fails if MariaDB is missing.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	testlevel.Integration(tb)
	s, err := Launch(context.WithoutCancel(tb.Context()), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Launch creates a data directory and starts a server. It returns when the server accepts
// connections. The caller must call Stop.
func Launch(ctx context.Context, o Options) (*Server, error) {
	server, err := find("mariadbd", "/usr/sbin", "/usr/libexec")
	if err != nil {
		return nil, err
	}
	install, err := find("mariadb-install-db", "/usr/bin")
	if err != nil {
		return nil, err
	}
	s, err := dbtest.New(kind)
	if err != nil {
		return nil, err
	}
	if err := launch(ctx, s, o, server, install); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start MariaDB: %w", err)
	}
	return &Server{s}, nil
}

func launch(ctx context.Context, s *dbtest.Server, o Options, server, install string) error {
	data := filepath.Join(s.Dir(), "data")
	err := s.Prepare(ctx, []string{"HOME=" + s.Dir()}, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--innodb-flush-method=nosync", "--innodb-log-file-size=4M", "--tmpdir="+s.Dir())
	if err != nil {
		return err
	}
	settings := []string{
		"datadir=" + data, "socket=" + socket(s.Dir()), "pid-file=" + filepath.Join(s.Dir(), "pid"), "tmpdir=" + s.Dir(),
		"skip-networking", "skip-name-resolve", "max_connections=200", "character-set-server=utf8mb4", "log_warnings=0",
	}
	if !o.Durable {
		settings = append(settings, "innodb_flush_log_at_trx_commit=0", "innodb_doublewrite=0", "innodb_flush_method=nosync")
	}
	argv := []string{server, "--no-defaults"}
	for _, setting := range append(settings, o.Settings...) {
		argv = append(argv, "--"+setting)
	}
	return s.Start(ctx, o.Env, argv...)
}

// ready reports whether the server greets a connection.
func ready(dir string) bool {
	conn, err := net.Dial("unix", socket(dir))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	var greeting [5]byte
	_, err = io.ReadFull(conn, greeting[:])
	return err == nil && greeting[4] == 10 // the version of the protocol; an error has 255
}

func socket(dir string) string { return filepath.Join(dir, "s") }

// DSN returns the data source name of a database for github.com/go-sql-driver/mysql; "" = one
// that always exists. The user is root, without a password: only this user can reach the socket.
func (s *Server) DSN(name string) string {
	if name == "" {
		name = database
	}
	return "root@unix(" + socket(s.Dir()) + ")/" + name
}

// find returns a program on PATH, or otherwise in one of the usual directories.
func find(program string, dirs ...string) (string, error) {
	if found, err := exec.LookPath(program); err == nil {
		return found, nil
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", ErrMissing
}
