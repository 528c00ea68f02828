package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
)

var errProcargs = errors.New("the arguments and the environment of a process are not understood")

// procargsEnviron returns the environment in what the sysctl kern.procargs2 of macOS tells
// of a process: the number of its arguments, the path of its program with one or more zero
// bytes behind it, the arguments, and the variables, each with a zero byte at its end. It is
// empty where the system keeps it from this process.
func procargsEnviron(data []byte) ([]byte, error) {
	if len(data) < 4 {
		return nil, errProcargs
	}
	count := binary.NativeEndian.Uint32(data)
	_, rest, ok := bytes.Cut(data[4:], []byte{0})
	if !ok {
		return nil, errProcargs
	}
	rest = bytes.TrimLeft(rest, "\x00")
	for range count {
		if _, rest, ok = bytes.Cut(rest, []byte{0}); !ok {
			return nil, errProcargs
		}
	}
	// What follows the last variable is the kernel's.
	if end := bytes.Index(rest, []byte{0, 0}); end >= 0 {
		rest = rest[:end+1]
	}
	if len(rest) == 0 || rest[0] == 0 {
		return nil, nil
	}
	return rest, nil
}
