package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// askPatience is how long a client may take to send its request.
	askPatience = 5 * time.Second
	// maxClients are served at a time; others wait.
	maxClients = 16
)

// Server answers requests.
type Server struct {
	path     string
	listener *net.UnixListener
	file     fs.FileInfo
	cancel   context.CancelFunc
	clients  sync.WaitGroup
}

// Taken reports whether a process listens at path.
func Taken(path string) bool {
	conn, err := net.DialTimeout("unix", path, lookPatience)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// Listen creates the socket path and calls answer for each request. It replaces a socket that a
// dead process has left, or that a process handing over to this one still uses. Several
// goroutines may call answer at a time; its context ends with the server. The directory must
// exist.
func Listen(path string, answer func(context.Context, Request) Reply) (*Server, error) {
	if there, err := os.Lstat(path); err == nil && there.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("control socket %s: there is something else than a socket: remove it, or set control_socket to another path", path)
	}
	// Clients cannot connect to a longer path, although a socket can be renamed to it.
	if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes, and %d are the most: set control_socket to another path", path, len(path), most)
	}
	// Under a temporary name first, so that path always has a socket, and others can never reach
	// it.
	temporary := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%d", os.Getpid()))
	_ = os.Remove(temporary)
	// Linux gives the file the socket's mode; other systems only after the Chmod below.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	opened, err := private.Listen(context.Background(), "unix", temporary)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("control socket %s: the path is too long for a temporary name next to it: set control_socket to another path", path)
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	listener, _ := opened.(*net.UnixListener)
	listener.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, 0o600)
	var file fs.FileInfo
	if err == nil {
		file, err = os.Lstat(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = listener.Close()
		_ = os.Remove(temporary)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{path: path, listener: listener, file: file, cancel: cancel}
	s.clients.Go(func() { s.serve(ctx, answer) })
	return s, nil
}

// Current reports whether path still is this socket, not another process's.
func (s *Server) Current() bool {
	there, err := os.Lstat(s.path)
	return err == nil && os.SameFile(there, s.file)
}

// Close removes the socket, unless it is another process's, ends the contexts of requests under
// way, and waits for them.
func (s *Server) Close() {
	if s.Current() {
		_ = os.Remove(s.path)
	}
	_ = s.listener.Close()
	s.cancel()
	s.clients.Wait()
}

func (s *Server) serve(ctx context.Context, answer func(context.Context, Request) Reply) {
	places := make(chan struct{}, maxClients)
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open, for example
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			_ = conn.Close()
			return
		}
		s.clients.Go(func() {
			defer func() { <-places }()
			defer func() { _ = conn.Close() }()
			talk(ctx, conn, answer)
		})
	}
}

func talk(ctx context.Context, conn *net.UnixConn, answer func(context.Context, Request) Reply) {
	reply := Reply{}
	var request Request
	switch err := receive(conn, askPatience, &request); {
	case err != nil:
		reply.Text = fmt.Sprintf("the request cannot be read: %v", err)
	case request.V != Version:
		reply.Text = fmt.Sprintf("the request is of version %d; this daemon knows %d: use the program of the daemon's own version", request.V, Version)
	default:
		reply = answer(ctx, request)
	}
	reply.V = Version
	line, err := json.Marshal(reply)
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(askPatience))
	_, _ = conn.Write(append(line, '\n'))
}

// receive reads one line; patience 0 = without a limit.
func receive(conn *net.UnixConn, patience time.Duration, into any) error {
	if patience > 0 {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}
