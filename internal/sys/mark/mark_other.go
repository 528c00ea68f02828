//go:build unix && !linux

package mark

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of returns zero: no process has a mark.
func Of(int) (Mark, error) { return 0, nil }

// Set fails with errors.ErrUnsupported.
func Set(pid int, _ Mark) error { return fmt.Errorf("mark process %d: %w", pid, errors.ErrUnsupported) }

// Hidden reports whether the process exists. Whether it is a zombie is unknown.
func Hidden(pid int) (exists, zombie bool) {
	return pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH), false
}
