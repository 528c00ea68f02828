package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
)

var errProcargs = errors.New("the arguments and the environment of a process are not understood")

// procargsEnviron returns the environment from the data of macOS's sysctl kern.procargs2: the
// number of arguments, the program's path followed by zero bytes, the arguments, and the
// variables, each ending with a zero byte. It is empty if the system hides it.
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
	// The data after the last variable is the kernel's.
	if end := bytes.Index(rest, []byte{0, 0}); end >= 0 {
		rest = rest[:end+1]
	}
	if len(rest) == 0 || rest[0] == 0 {
		return nil, nil
	}
	return rest, nil
}
