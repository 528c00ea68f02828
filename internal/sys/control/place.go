package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookPatience bounds the check whether a socket is dead.
const lookPatience = 100 * time.Millisecond

// socketName is the socket's name in a service's own directory.
const socketName = "control.sock"

// Places are the directories where sockets may be.
type Places struct {
	// Configured is the socket named by the configuration; "" = none.
	Configured string
	// Service is the service's directory (RUNTIME_DIRECTORY); "" = none.
	Service string
	// Runtime is the user's directory for sockets (XDG_RUNTIME_DIR); "" = none.
	Runtime string
	// Temporary is the directory for temporary files.
	Temporary string
	// System is the parent of the services' directories, /run.
	System string
}

// Own returns the path for the socket of process pid. It creates the user's directory; the
// service manager creates a service's.
func (p Places) Own(pid int) (string, error) {
	if p.Service != "" {
		return p.serviceSocket(), nil
	}
	dir := p.private()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("directory of the control socket: %w", err)
	}
	if err := trusted(dir); err != nil {
		return "", err
	}
	removeDead(dir)
	return filepath.Join(dir, strconv.Itoa(pid)+".sock"), nil
}

func (p Places) service() string {
	first, _, _ := strings.Cut(p.Service, ":")
	return first
}

func (p Places) private() string {
	if p.Runtime != "" {
		return filepath.Join(p.Runtime, "resqued")
	}
	return filepath.Join(p.Temporary, fmt.Sprintf("resqued-%d", os.Getuid()))
}

// trusted returns an error if another user could write to a directory. Anyone may create one in
// the directory for temporary files.
func trusted(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("directory of the control socket %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("directory of the control socket %s: it must be a directory of user %d that no other user can enter (mode 0700); "+
			"remove it, or set control_socket", dir, os.Getuid())
	}
	return nil
}

func removeDead(dir string) {
	for _, path := range sockets(dir, "*.sock") {
		conn, err := net.DialTimeout("unix", path, lookPatience)
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// Found is a daemon that can be asked.
type Found struct {
	Path string
	PID  int
	// Version, Status, Store and Redis are from its reply.
	Version, Status, Store, Redis string
	// Err: the socket exists, but the daemon could not be asked.
	Err error
}

// Find returns the daemons of this machine: the configured one, else the one of this process's
// service, else all others. If pid is not 0, Find looks in all of these places.
func (p Places) Find(pid int) []Found {
	var found []Found
	for _, own := range []string{p.Configured, p.serviceSocket()} {
		if own == "" || !exists(own) {
			continue
		}
		if found = ask(found, own); len(found) > 0 && pid == 0 {
			return found
		}
	}
	if dir := p.private(); trusted(dir) == nil {
		for _, path := range sockets(dir, "*.sock") {
			found = ask(found, path)
		}
	}
	for _, pattern := range []string{"resqued/" + socketName, "resqued/*/" + socketName, "resqued-*/" + socketName} {
		for _, path := range sockets(p.System, pattern) {
			found = ask(found, path)
		}
	}
	return found
}

func (p Places) serviceSocket() string {
	if p.Service == "" {
		return ""
	}
	return filepath.Join(p.service(), socketName)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func sockets(dir, pattern string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, pattern))
	return paths
}

// ask appends the daemon that listens at path, unless found has it.
func ask(found []Found, path string) []Found {
	if slices.ContainsFunc(found, func(f Found) bool { return f.Path == path }) {
		return found
	}
	reply, err := Ask(path, Status, dialPatience)
	if errors.Is(err, ErrNoDaemon) || reply.Elsewhere {
		return found
	}
	return append(found, Found{Path: path, PID: reply.PID, Version: reply.Version, Status: reply.Text, Store: reply.Store, Redis: reply.Redis, Err: err})
}
