package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// PIDFile is a file with this process's id that no other process can take while
// this one lives, however it ends: the kernel holds the lock.
type PIDFile struct {
	path string
	f    *os.File
}

// WritePIDFile creates path, or takes over one that a dead process left behind.
// It fails, naming the other process, if a living one holds it. The file is
// complete from the instant that it exists.
func WritePIDFile(path string) (*PIDFile, error) {
	for {
		f, err := openPIDFile(path)
		if errors.Is(err, os.ErrNotExist) {
			f, err = createPIDFile(path)
		}
		switch {
		case errors.Is(err, errRaced):
			continue
		case err != nil:
			return nil, fmt.Errorf("pidfile: %w", err)
		}
		return &PIDFile{path: path, f: f}, nil
	}
}

// Remove removes the file and gives up the lock.
func (p *PIDFile) Remove() error {
	defer func() { _ = p.f.Close() }()
	if !sameFile(p.f, p.path) {
		return nil // it was removed or replaced; what is there is not ours
	}
	if err := os.Remove(p.path); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	return nil
}

// errRaced: another process came between; try again.
var errRaced = errors.New("pidfile changed meanwhile")

// openPIDFile takes over an existing file.
func openPIDFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		holder, _, _ = bytes.Cut(holder, []byte("\n"))
		return nil, fmt.Errorf("%s is held by the running process %s: stop it, or use another pidfile", path, holder)
	}
	if !sameFile(f, path) {
		_ = f.Close()
		return nil, errRaced
	}
	// Write, then cut: a reader never sees an empty file.
	if err := writePID(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// createPIDFile puts a finished and locked file in place.
func createPIDFile(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = errors.Join(f.Chmod(0o644), lock(f), writePID(f))
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, os.ErrExist) {
			return nil, errRaced
		}
		return nil, err
	}
	return f, nil
}

func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func writePID(f *os.File) error {
	text := strconv.Itoa(os.Getpid()) + "\n"
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

func sameFile(f *os.File, path string) bool {
	ours, err1 := f.Stat()
	there, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(ours, there)
}
