package web

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user at the other end of a unix socket.
func peerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failed == nil {
			uid = int(cred.Uid)
		}
	})
	if err == nil {
		err = failed
	}
	return uid, err
}
