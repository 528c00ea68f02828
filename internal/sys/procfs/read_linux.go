package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// read returns the content of a file of /proc. os.ReadFile needs three times as many system
// calls: it asks for the size, which such files do not have, and registers with the poller,
// which refuses.
func read(path string) ([]byte, error) {
	fd, err := open(path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 0, 512)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if n <= 0 || err != nil {
			return text, failed("read", path, err)
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

// list returns the names in a directory of /proc; with an error, those read before it.
func list(path string) (names []string, err error) {
	fd, err := open(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	entries := make([]byte, 4096)
	for {
		n, err := again(func() (int, error) { return unix.ReadDirent(fd, entries) })
		if n <= 0 || err != nil {
			return names, failed("readdirent", path, err)
		}
		_, _, names = unix.ParseDirent(entries[:n], -1, names)
	}
}

func open(path string, flags int) (int, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0) })
	return fd, failed("open", path, err)
}

// again repeats a system call that a signal interrupts.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}
