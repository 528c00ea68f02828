package web

import "golang.org/x/sys/unix"

// credentials returns the user at the other end of a unix socket.
func credentials(fd int) (uid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
