package web

import "golang.org/x/sys/unix"

// credentials returns the user at the other end of a unix socket.
func credentials(fd int) (uid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
