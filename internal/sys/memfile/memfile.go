// Package memfile makes nameless files that are gone with their last descriptor: in memory on
// Linux, in the temporary directory elsewhere.
package memfile

import (
	"errors"
	"io"
	"os"
)

// ErrUnsealed means that Sealed has not made a file.
var ErrUnsealed = errors.New("not a sealed file")

// New returns a file with that content, at its beginning. Tools that list a process's
// descriptors show the name.
func New(name string, content []byte) (*os.File, error) {
	f, err := open(name, false)
	if err != nil {
		return nil, err
	}
	if err := fill(f, content); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Sealed is New for a file that can no longer change, where the system supports that.
func Sealed(name string, content []byte) (*os.File, error) {
	f, err := open(name, true)
	if err != nil {
		return nil, err
	}
	err = fill(f, content)
	if err == nil {
		err = seal(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadSealed returns the content of a file from Sealed, in this process or another. It fails
// with ErrUnsealed on any other file.
func ReadSealed(f *os.File) ([]byte, error) {
	if err := sealed(f); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, info.Size())
	// ReadAt, because the offset is shared with the process that made the file.
	if _, err := f.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content, nil
}

func fill(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}
