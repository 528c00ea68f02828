package procfs

import (
	"bytes"
	"errors"
	"os"
)

func environ(pid string) ([]byte, error) {
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	if err == nil && len(env) > 0 || Blind(err) != nil {
		return env, Blind(err)
	}
	// The first thread of a process may have ended while others run.
	threads, err := names("/proc/" + pid + "/task")
	for _, thread := range threads {
		env, unread := os.ReadFile("/proc/" + pid + "/task/" + thread + "/environ")
		if unread == nil && len(env) > 0 {
			return env, nil
		}
		err = errors.Join(err, Blind(unread))
	}
	return nil, err
}

func openEnviron(pid string) error {
	f, err := os.Open("/proc/" + pid + "/environ")
	if err != nil {
		return err
	}
	return f.Close()
}

// memoryGone reports whether a process has given back its memory, as one that is dying has.
func memoryGone(pid string) (bool, error) {
	text, err := os.ReadFile("/proc/" + pid + "/statm")
	return bytes.HasPrefix(text, []byte("0 ")), err
}
