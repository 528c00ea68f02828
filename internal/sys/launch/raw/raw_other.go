//go:build !amd64 && !arm64

// Package raw is the assembly below package launch. There is none for this machine.
package raw

// Supported reports whether there is assembly for this machine.
const Supported = false

// Results after which a list continues; on any other the process ends.
const (
	Any = iota
	NoError
	Want // exactly Op.Want
	// Absent: the file is missing, cannot be looked up, or may not be run; others may be tried.
	Absent
)

// Op is one system call of a list.
type Op struct {
	Number              uintptr
	Args                [4]uintptr
	Check, Want, Result uintptr
}

// Passed is never called: no list is run.
func (o Op) Passed(uintptr) bool { return false }

// NoFile returns 0: the limits are unknown.
func NoFile() (soft, hard uint64) { return 0, 0 }

// Clone always fails.
func Clone(uintptr, *int32, *uint32, []Op) int { return -38 } // ENOSYS
