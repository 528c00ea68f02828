package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoDaemon means that no daemon listens at a socket.
var ErrNoDaemon = errors.New("no daemon listens there")

// ErrNoAnswer means that the daemon received the request but did not answer in time.
var ErrNoAnswer = errors.New("no answer in time")

const dialPatience = 5 * time.Second

// Ask sends a request to the daemon at path and waits for its reply; without a limit if patience
// is 0.
func Ask(path, do string, patience time.Duration) (Reply, error) {
	var reply Reply
	conn, err := net.DialTimeout("unix", path, dialPatience)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return reply, fmt.Errorf("%s: %w", path, ErrNoDaemon)
	case errors.Is(err, fs.ErrPermission):
		return reply, fmt.Errorf("%s: not allowed: ask as root or as the daemon's user", path)
	case err != nil:
		return reply, fmt.Errorf("control socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	line, err := json.Marshal(Request{V: Version, Do: do})
	if err != nil {
		return reply, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return reply, fmt.Errorf("control socket %s: %w", path, err)
	}
	err = receive(conn.(*net.UnixConn), patience, &reply)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return reply, fmt.Errorf("%s: %w", path, ErrNoAnswer)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return reply, fmt.Errorf("%s: the daemon has ended before it answered", path)
	case err != nil:
		return reply, fmt.Errorf("control socket %s: %w", path, err)
	case reply.V != Version:
		return reply, fmt.Errorf("%s: the reply is of version %d; this program knows %d", path, reply.V, Version)
	}
	return reply, nil
}
