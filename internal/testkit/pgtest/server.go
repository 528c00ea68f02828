package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/testkit/dbtest"
)

// Superuser is the role and the database of every server. It needs no password: only this user
// can reach the socket.
const Superuser = "postgres"

// ErrMissing reports that PostgreSQL's programs are not installed.
var ErrMissing = errors.New("PostgreSQL is missing (initdb and postgres, on PATH or below /usr/lib/postgresql): apt-get install postgresql")

const port = "5432" // only in the socket's name

var kind = dbtest.Kind{Name: "PostgreSQL", Prefix: "pgtest", Users: []string{"postgres", "nobody"}, Crash: "QUIT", Patience: 30 * time.Second, Ready: ready}

// Options configure a server.
type Options struct {
	// Settings are lines of postgresql.conf: "synchronous_commit=on".
	Settings []string
	// Durable leaves fsync, full_page_writes and synchronous_commit on.
	Durable bool
}

// Server is a running PostgreSQL. Restart crashes it without a checkpoint.
type Server struct{ *dbtest.Server }

// Launch creates a cluster and starts a server. It returns when the server accepts connections.
// The caller must call Stop.
func Launch(ctx context.Context, o Options) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	s, err := dbtest.New(kind)
	if err != nil {
		return nil, err
	}
	if err := launch(ctx, s, o, bin); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return &Server{s}, nil
}

func launch(ctx context.Context, s *dbtest.Server, o Options, bin string) error {
	data := filepath.Join(s.Dir(), "data")
	err := s.Prepare(ctx, nil, filepath.Join(bin, "initdb"),
		"-D", data, "-U", Superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	settings := []string{"listen_addresses=", "unix_socket_directories=" + s.Dir(), "port=" + port, "max_connections=200", "log_min_messages=warning"}
	if !o.Durable {
		settings = append(settings, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
	}
	argv := []string{filepath.Join(bin, "postgres"), "-D", data}
	for _, setting := range append(settings, o.Settings...) {
		argv = append(argv, "-c", setting)
	}
	return s.Start(ctx, nil, argv...)
}

// ready reports whether the server accepts a session. A server that is still starting opens its
// socket and refuses sessions.
func ready(dir string) bool {
	conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL."+port))
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

// URL returns the connection string of a database; "" = Superuser's.
func (s *Server) URL(database string) string {
	if database == "" {
		database = Superuser
	}
	q := url.Values{"host": {s.Dir()}, "port": {port}, "user": {Superuser}, "sslmode": {"disable"}}
	return "postgres:///" + url.PathEscape(database) + "?" + q.Encode()
}

// find returns the directory of initdb and postgres: on PATH, or otherwise the newest of
// Debian's, which are not.
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
