// Package mysqltest gives tests a MariaDB of their own: a fresh data directory in a temporary
// directory, on a unix socket, with settings for speed instead of durability. No server outlives
// its program, however that ends. Nothing is installed: where MariaDB is missing the error names
// what to install. Package pgtest does the same for PostgreSQL.
package mysqltest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/resqued/resqued/internal/testlevel"
)

// ErrMissing reports that MariaDB's programs are not installed.
var ErrMissing = errors.New("MariaDB is missing (mariadbd and mariadb-install-db, on PATH or in /usr/sbin and /usr/bin): apt-get install mariadb-server-core mariadb-client-core")

const (
	installTimeout = time.Minute
	readyTimeout   = time.Minute
	database       = "test"
)

// supervise ends the server and removes the directory when the pipe from this program closes,
// however the program ended. It runs as the server's user.
const supervise = `dir=$1; shift
start() {
	"$@" >>"$dir/server.log" 2>&1 </dev/null &
	pid=$!
	echo $pid
}
start "$@"
while read -r word; do
	kill -KILL $pid
	wait $pid
	start "$@"
done
kill -KILL $pid
wait $pid
rm -rf "$dir"/* 2>/dev/null
rmdir "$dir" 2>/dev/null
echo gone
`

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
type Server struct {
	dir   string
	pid   int
	shell *exec.Cmd
	words io.WriteCloser
	out   *bufio.Reader
}

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
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	// The directory's name is short because a unix socket's path is limited to 107 bytes.
	dir, err := os.MkdirTemp("", "mysqltest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.launch(ctx, o, server, install, who); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start MariaDB: %w", err)
	}
	return s, nil
}

func (s *Server) launch(ctx context.Context, o Options, server, install string, who *syscall.Credential) error {
	if who != nil {
		if err := os.Chown(s.dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(s.dir, "data")
	limited, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	init := exec.CommandContext(limited, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--innodb-flush-method=nosync", "--innodb-log-file-size=4M", "--tmpdir="+s.dir)
	init.Dir, init.Env = s.dir, append(init.Environ(), "HOME="+s.dir)
	init.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if text, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, lastLines(string(text), 5))
	}

	settings := []string{
		"datadir=" + data, "socket=" + s.socket(), "pid-file=" + filepath.Join(s.dir, "pid"), "tmpdir=" + s.dir,
		"skip-networking", "skip-name-resolve", "max_connections=200", "character-set-server=utf8mb4", "log_warnings=0",
	}
	if !o.Durable {
		settings = append(settings, "innodb_flush_log_at_trx_commit=0", "innodb_doublewrite=0", "innodb_flush_method=nosync")
	}
	argv := []string{"-c", supervise, "mysqltest-watchdog", s.dir, server, "--no-defaults"}
	for _, setting := range append(settings, o.Settings...) {
		argv = append(argv, "--"+setting)
	}
	// Not CommandContext, because ctx limits only the start.
	s.shell = exec.Command("/bin/sh", argv...)
	s.shell.Dir, s.shell.Env = s.dir, append(s.shell.Environ(), o.Env...)
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	var err error
	if s.words, err = s.shell.StdinPipe(); err != nil {
		return err
	}
	out, err := s.shell.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.shell.Start(); err != nil {
		s.shell = nil
		return err
	}
	s.out = bufio.NewReader(out)
	return s.started(ctx)
}

// started returns when the server that the watchdog has just started accepts connections.
func (s *Server) started(ctx context.Context) error {
	line, err := s.out.ReadString('\n')
	if err != nil {
		return err
	}
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.ready() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it does not take connections: %w: %s", context.Cause(ctx), s.Log())
		}
	}
}

// Restart crashes the server, which cuts every connection, and starts it again with its data. It
// returns when the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	if _, err := io.WriteString(s.words, "restart\n"); err != nil {
		return err
	}
	return s.started(ctx)
}

// ready reports whether the server greets a connection.
func (s *Server) ready() bool {
	conn, err := net.Dial("unix", s.socket())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	var greeting [5]byte
	_, err = io.ReadFull(conn, greeting[:])
	return err == nil && greeting[4] == 10 // the version of the protocol; an error has 255
}

func (s *Server) socket() string { return filepath.Join(s.dir, "s") }

// PID returns the process id of the server.
func (s *Server) PID() int { return s.pid }

// Dir returns the directory of the socket and of all the server's files.
func (s *Server) Dir() string { return s.dir }

// DSN returns the data source name of a database for github.com/go-sql-driver/mysql; empty means
// one that exists from the beginning. The user is root, without a password: only this user can
// reach the socket.
func (s *Server) DSN(name string) string {
	if name == "" {
		name = database
	}
	return "root@unix(" + s.socket() + ")/" + name
}

// Log returns the end of the server's log, for the message of a failed test.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return lastLines(string(text), 10)
}

// Stop ends the server at once and removes its files.
func (s *Server) Stop() {
	if s.shell != nil {
		_ = s.words.Close()
		_, _ = io.Copy(io.Discard, s.out) // until the watchdog has removed everything
		_ = s.shell.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// find returns a program: that on PATH, or otherwise the one in a directory where systems keep it.
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

// unprivileged returns the user for the server, which refuses to run as root; nil means the user
// of this program. Debian's own user is preferred.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(u.Uid, 10, 32)
		gid, errG := strconv.ParseUint(u.Gid, 10, 32)
		if errU == nil && errG == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("MariaDB refuses to run as root, and there is no user mysql or nobody")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
