package procfs

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

func environ(pid string) ([]byte, error) {
	env, err := read("/proc/" + pid + "/environ")
	if err == nil && len(env) > 0 || Blind(err) != nil {
		return env, Blind(err)
	}
	// The main thread may have ended while others run.
	threads, err := names("/proc/" + pid + "/task")
	for _, thread := range threads {
		env, unread := read("/proc/" + pid + "/task/" + thread + "/environ")
		if unread == nil && len(env) > 0 {
			return env, nil
		}
		err = errors.Join(err, Blind(unread))
	}
	return nil, err
}

func openEnviron(pid string) error {
	fd, err := open("/proc/"+pid+"/environ", 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// memoryGone reports whether a process has released its memory, as a dying one has.
func memoryGone(pid string) (bool, error) {
	text, err := read("/proc/" + pid + "/statm")
	return bytes.HasPrefix(text, []byte("0 ")), err
}
