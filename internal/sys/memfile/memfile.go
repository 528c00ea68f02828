// Package memfile makes files that have no name and are gone with their last descriptor: in
// memory on Linux, in the temporary directory elsewhere.
package memfile

import (
	"errors"
	"io"
	"os"
)

// ErrUnsealed says that a file is not one that Sealed has made.
var ErrUnsealed = errors.New("not a sealed file")

// New returns a file with that content, to be read from its beginning. The name is for people
// who look at a process's descriptors.
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

// Sealed is New for a file that cannot be changed any more, where the system has that.
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

// ReadSealed returns the content of a file that Sealed has made, in this process or another.
// It fails with ErrUnsealed on another file.
func ReadSealed(f *os.File) ([]byte, error) {
	if err := sealed(f); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, info.Size())
	// ReadAt: the offset is shared with whoever has made it.
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
