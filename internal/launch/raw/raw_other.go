//go:build !amd64 && !arm64

// Package raw is the assembly below package launch. There is none for this machine.
package raw

// Supported reports whether there is assembly for this machine.
const Supported = false

// What an Op has to return for the list to go on. Otherwise the process ends.
const (
	Any = iota
	NoError
	Want // exactly that
	// Absent: a file that is not there or may not be run; others may be tried.
	Absent
)

// Op is one system call of a list.
type Op struct {
	Number              uintptr
	Args                [4]uintptr
	Check, Want, Result uintptr
}

// Passed reports whether a list goes on after that result.
func (o Op) Passed(result uintptr) bool {
	switch o.Check {
	case NoError:
		return int(result) >= 0
	case Want:
		return result == o.Want
	case Absent:
		errno := -int(result)
		return errno == enoent || errno == eacces || errno == enotdir
	}
	return true
}

// Error numbers that mean the same on all machines.
const enoent, eacces, enotdir = 2, 13, 20

// NoFile returns 0: it cannot be told.
func NoFile() (soft, hard uint64) { return 0, 0 }

// Clone always fails.
func Clone(uintptr, *int32, *uint32, []Op) int { return -38 } // ENOSYS
