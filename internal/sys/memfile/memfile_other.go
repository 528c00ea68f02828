//go:build unix && !linux

package memfile

import "os"

func open(name string, _ bool) (*os.File, error) {
	f, err := os.CreateTemp("", name+".*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func seal(*os.File) error { return nil }

func sealed(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return ErrUnsealed
	}
	return nil
}
