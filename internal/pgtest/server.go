package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Superuser is the role and the database of every server. It needs no password: only this user
// can reach the socket.
const Superuser = "postgres"

// ErrMissing reports that PostgreSQL's programs are not installed.
var ErrMissing = errors.New("PostgreSQL is missing (initdb and postgres, on PATH or below /usr/lib/postgresql): apt-get install postgresql")

const (
	initTimeout  = time.Minute
	readyTimeout = 30 * time.Second
	port         = "5432" // of the socket's name alone
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
	kill -QUIT $pid
	wait $pid
	start "$@"
done
kill -QUIT $pid
wait $pid
rm -rf "$dir"/* 2>/dev/null
rmdir "$dir" 2>/dev/null
echo gone
`

// Options configure a server.
type Options struct {
	// Settings are lines of postgresql.conf: "synchronous_commit=on".
	Settings []string
	// Durable leaves fsync, full_page_writes and synchronous_commit on.
	Durable bool
}

// Server is a running PostgreSQL.
type Server struct {
	dir   string
	pid   int
	shell *exec.Cmd
	words io.WriteCloser
	out   *bufio.Reader
}

// Launch creates a cluster and starts a server. It returns when the server accepts connections.
// The caller must call Stop.
func Launch(ctx context.Context, o Options) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	// The directory's name is short because a unix socket's path is limited to 107 bytes.
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.launch(ctx, o, bin, who); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *Server) launch(ctx context.Context, o Options, bin string, who *syscall.Credential) error {
	if who != nil {
		if err := os.Chown(s.dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(s.dir, "data")
	limited, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	initdb := exec.CommandContext(limited, filepath.Join(bin, "initdb"),
		"-D", data, "-U", Superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir = s.dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if text, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(string(text), 5))
	}

	settings := []string{"listen_addresses=", "unix_socket_directories=" + s.dir, "port=" + port, "max_connections=200", "log_min_messages=warning"}
	if !o.Durable {
		settings = append(settings, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
	}
	argv := []string{"-c", supervise, "pgtest-watchdog", s.dir, filepath.Join(bin, "postgres"), "-D", data}
	for _, setting := range append(settings, o.Settings...) {
		argv = append(argv, "-c", setting)
	}
	// Not CommandContext, because ctx limits only the start.
	s.shell = exec.Command("/bin/sh", argv...)
	s.shell.Dir = s.dir
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
	return s.await(ctx)
}

// Restart crashes the server (no checkpoint, every connection cut) and starts it again with its
// data. It returns when the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	if _, err := io.WriteString(s.words, "restart\n"); err != nil {
		return err
	}
	return s.started(ctx)
}

// await returns when the server accepts connections.
func (s *Server) await(ctx context.Context) error {
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

// ready reports whether the server accepts a session. A server that is still starting opens its
// socket and refuses sessions.
func (s *Server) ready() bool {
	conn, err := net.Dial("unix", filepath.Join(s.dir, ".s.PGSQL."+port))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	body := "\x00\x03\x00\x00" + "user\x00" + Superuser + "\x00\x00" // protocol 3.0
	if _, err := conn.Write(append([]byte{0, 0, 0, byte(len(body) + 4)}, body...)); err != nil {
		return false
	}
	var kind [1]byte
	_, err = io.ReadFull(conn, kind[:])
	return err == nil && kind[0] == 'R' // authentication; 'E' is a refusal
}

// PID returns the process id of the server's first process, the parent of the others.
func (s *Server) PID() int { return s.pid }

// Dir returns the directory of the socket and of all the server's files.
func (s *Server) Dir() string { return s.dir }

// URL returns the connection string of a database; empty means that of Superuser.
func (s *Server) URL(database string) string {
	if database == "" {
		database = Superuser
	}
	q := url.Values{"host": {s.dir}, "port": {port}, "user": {Superuser}, "sslmode": {"disable"}}
	return "postgres:///" + url.PathEscape(database) + "?" + q.Encode()
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

// find returns the directory of initdb and postgres: that on PATH, or otherwise the newest of
// Debian's, which are not on PATH.
func find() (string, error) {
	if found, err := exec.LookPath("initdb"); err == nil {
		if found, err = filepath.EvalSymlinks(found); err == nil && complete(filepath.Dir(found)) {
			return filepath.Dir(found), nil
		}
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range dirs {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", ErrMissing
}

func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func complete(dir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// unprivileged returns the user for the server, which refuses to run as root; nil means the
// user of this program. Debian's own user is preferred.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
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
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
