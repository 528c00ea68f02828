package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// read returns what is in a file of /proc. os.ReadFile does the same with three times as many
// system calls: it asks for the size, which such a file does not tell, and offers it to the poller,
// which does not take it.
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

// list returns the names in a directory of /proc, and those that it could read where it fails.
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

// again calls a system call until no signal interrupts it.
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
