//go:build amd64 || arm64

// Package raw is the assembly below package launch: a process that runs a list of system
// calls, and nothing else, in the memory of its parent.
//
// It imports nothing, so that it is initialised before package syscall, which raises the
// limit on open files.
package raw

import "unsafe"

// Supported reports whether there is assembly for this machine.
const Supported = true

// What an Op has to return for the list to go on. Otherwise the process ends.
const (
	Any = iota
	NoError
	Want // exactly that
	// Absent: a file that is not there, cannot be looked for, or may not be run; others may be
	// tried.
	Absent
)

// Op is one system call of a list. The assembly knows its layout.
type Op struct {
	Number uintptr
	Args   [4]uintptr
	Check  uintptr
	Want   uintptr
	// Result is what the kernel returned. The list's process writes it.
	Result uintptr
}

// files is RLIMIT_NOFILE.
const files = 7

var noFile [2]uint64

func init() {
	if prlimit(files, &noFile) != 0 {
		noFile = [2]uint64{}
	}
}

// Passed reports whether a list goes on after that result.
func (o Op) Passed(result uintptr) bool {
	switch o.Check {
	case NoError:
		return int(result) >= 0
	case Want:
		return result == o.Want
	case Absent:
		switch -int(result) {
		case enoent, eacces, enotdir, enodev, enametoolong, eloop, enotconn, etimedout, estale:
			return true
		}
		return false
	}
	return true
}

// Error numbers of these machines: of files that are not there, and of file systems that are
// broken.
const (
	enoent, eacces, enotdir                                  = 2, 13, 20
	enodev, enametoolong, eloop, enotconn, etimedout, estale = 19, 36, 40, 107, 110, 116
)

// NoFile returns the limits on open files with which this process was started, soft and
// hard; 0 if they cannot be told.
func NoFile() (soft, hard uint64) { return noFile[0], noFile[1] }

// Clone starts a process of this one's memory that runs the list, whose last system call
// must not return, and returns its number, or a negated error number.
//
// The caller has blocked all signals of its thread, and keeps the list, and all that it
// refers to, as they are until the word at tid is 0 (CLONE_CHILD_CLEARTID). The process has
// no stack: no handler of a signal may ever run in it.
func Clone(flags uintptr, pidfd *int32, tid *uint32, list []Op) int {
	return int(clone(flags, unsafe.Pointer(pidfd), unsafe.Pointer(tid), unsafe.Pointer(&list[0])))
}

// prlimit and clone are written in assembly.
func prlimit(resource uintptr, limit *[2]uint64) uintptr
func clone(flags uintptr, pidfd, tid, list unsafe.Pointer) uintptr
