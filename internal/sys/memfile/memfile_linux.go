package memfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func open(name string, sealable bool) (*os.File, error) {
	flags := unix.MFD_CLOEXEC
	var fd int
	err := error(unix.EINVAL)
	if sealable {
		flags |= unix.MFD_ALLOW_SEALING
		fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	}
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func seal(f *os.File) error {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	return nil
}

func sealed(f *os.File) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_WRITE == 0 {
		return ErrUnsealed
	}
	return nil
}
