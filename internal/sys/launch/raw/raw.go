//go:build amd64 || arm64

// Package raw is the assembly below package launch: a process that only runs a list of system
// calls, in its parent's memory.
//
// It imports nothing, so that it is initialised before package syscall, which raises the limit
// on open files.
package raw

import "unsafe"

// Supported reports whether there is assembly for this machine.
const Supported = true

// Results after which a list continues; on any other the process ends.
const (
	Any = iota
	NoError
	Want // exactly Op.Want
	// Absent: the file is missing, cannot be looked up, or may not be run; others may be tried.
	Absent
)

// Op is one system call of a list. The assembly knows its layout.
type Op struct {
	Number uintptr
	Args   [4]uintptr
	Check  uintptr
	Want   uintptr
	// Result is what the kernel returned. The new process writes it.
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

// Passed reports whether a list continues after that result.
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

// Error numbers of these machines, for missing files and broken file systems.
const (
	enoent, eacces, enotdir                                  = 2, 13, 20
	enodev, enametoolong, eloop, enotconn, etimedout, estale = 19, 36, 40, 107, 110, 116
)

// NoFile returns the soft and hard limit on open files at this process's start; 0 if unknown.
func NoFile() (soft, hard uint64) { return noFile[0], noFile[1] }

// Clone starts a process in this one's memory that runs the list, and returns its pid or a
// negated error number. The list's last system call must not return.
//
// The caller has blocked all signals of its thread. It keeps the list and all that it refers to
// unchanged until the word at tid is 0 (CLONE_CHILD_CLEARTID). The process has no stack, so no
// signal handler may ever run in it.
func Clone(flags uintptr, pidfd *int32, tid *uint32, list []Op) int {
	return int(clone(flags, unsafe.Pointer(pidfd), unsafe.Pointer(tid), unsafe.Pointer(&list[0])))
}

func prlimit(resource uintptr, limit *[2]uint64) uintptr
func clone(flags uintptr, pidfd, tid, list unsafe.Pointer) uintptr
