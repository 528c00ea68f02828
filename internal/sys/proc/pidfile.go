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

// PIDFile is a file with this process's id. No other process can take it while this one lives:
// the kernel releases the lock however the process ends.
type PIDFile struct {
	path string
	f    *os.File
	// prepared is the file's name until Take renames it; "" afterwards.
	prepared string
}

// WritePIDFile creates path, or takes it over from a dead process. If a living process holds it,
// the error names that process. The file is never seen incomplete.
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

// PreparePIDFile prepares to take over path from holder, a living process that cooperates.
// Nothing is visible before Take. It fails if another process holds the file.
func PreparePIDFile(path string, holder int) (*PIDFile, error) {
	if err := heldBy(path, holder); err != nil {
		return nil, fmt.Errorf("pidfile: %w", err)
	}
	f, err := preparedPIDFile(path)
	if err != nil {
		return nil, fmt.Errorf("pidfile: %w", err)
	}
	return &PIDFile{path: path, f: f, prepared: f.Name()}, nil
}

// heldBy returns an error if a living process other than pid holds the file.
func heldBy(path string, pid int) error {
	f, err := openOwn(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := lock(f); err == nil {
		return nil
	}
	if holder := holderOf(f); holder != strconv.Itoa(pid) {
		return fmt.Errorf("%s is held by the running process %s: stop it, or use another pidfile", path, holder)
	}
	return nil
}

// Take puts this process's file in place of the current one: the prepared file, or a new one.
func (p *PIDFile) Take() error {
	if p.prepared == "" {
		f, err := preparedPIDFile(p.path)
		if err != nil {
			return fmt.Errorf("pidfile: %w", err)
		}
		_ = p.f.Close()
		p.f, p.prepared = f, f.Name()
	}
	if err := os.Rename(p.prepared, p.path); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	p.prepared = ""
	return nil
}

// Remove removes the file, unless another process has replaced it, and gives up the lock.
func (p *PIDFile) Remove() error {
	defer func() { _ = p.f.Close() }()
	if p.prepared != "" {
		_ = os.Remove(p.prepared)
	}
	if !sameFile(p.f, p.path) {
		return nil // it was removed or replaced; what is there is not ours
	}
	if err := os.Remove(p.path); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	return nil
}

var errRaced = errors.New("pidfile changed meanwhile")

// openOwn opens an existing file. It does not follow a link, which another user may have made.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed: name the file itself", path)
	}
	return f, err
}

func openPIDFile(path string) (*os.File, error) {
	f, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%s is held by the running process %s: stop it, or use another pidfile", path, holderOf(f))
	}
	if !sameFile(f, path) {
		_ = f.Close()
		return nil, errRaced
	}
	// Write, then truncate: a reader never sees an empty file.
	if err := writePID(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func holderOf(f *os.File) string {
	holder, _ := io.ReadAll(io.LimitReader(f, 20))
	holder, _, _ = bytes.Cut(holder, []byte("\n"))
	return string(holder)
}

// preparedPIDFile returns a complete and locked file next to path.
func preparedPIDFile(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Chmod(0o644), lock(f), writePID(f)); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

// createPIDFile links a complete and locked file to path.
func createPIDFile(path string) (*os.File, error) {
	f, err := preparedPIDFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := os.Link(f.Name(), path); err != nil {
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
