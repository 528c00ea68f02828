package program

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/resqued/resqued/internal/sys/launch"
)

// ErrNotBegun means that a program was killed before the system had opened it.
var ErrNotBegun = errors.New("ended while the system was still opening it")

// StartError says that a command could not be started.
type StartError struct {
	Program string
	Err     error
	// Hint says what to do; it may be empty.
	Hint string
}

func (e *StartError) Error() string {
	err := e.Err
	if failed, ok := errors.AsType[*launch.Error](err); ok {
		err = failed.Err
	}
	var lookup *exec.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &lookup):
		err = lookup.Err // without the name, which text has already
	case errors.As(err, &errno):
		err = errno
	}
	text := fmt.Sprintf("start %q: %s", e.Program, err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// Exception is the exception name in the failure record.
func (e *StartError) Exception() string { return "Resqued::CommandNotStarted" }

// Explain adds what to do about a program that could not be started. section is the part of the
// configuration that names its directory.
func Explain(err *launch.Error, name, dir, section string) *StartError {
	start := &StartError{Program: name, Err: err}
	switch {
	case errors.Is(err, ErrNotBegun):
		start.Hint = fmt.Sprintf("%q does not open: its file server does not answer, another process holds a lease on the file, or a scanner looks at it", err.Path)
	case err.Op == "chdir":
		start.Hint = fmt.Sprintf("its working directory %q is not there; see dir: under %s in the configuration", dir, section)
	case errors.Is(err, exec.ErrNotFound):
		start.Hint = "it is not on the daemon's PATH; install it, or name it by its whole path"
	case errors.Is(err, syscall.ENOENT):
		start.Hint = "there is no such file, or the interpreter in its first line is missing"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		start.Hint = "the daemon's user may not run it; make it executable (chmod +x), and look at the mount options and the sandbox of the unit"
	case errors.Is(err, syscall.ENOEXEC):
		start.Hint = "it is not a program for this machine; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		start.Hint = "an argument, a variable or all of them together are too long for a program; the job's arguments come on stdin and may be of any size"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		start.Hint = "the machine, or the limit of the unit (TasksMax, MemoryMax), has no room for another process"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		start.Hint = "too many files are open; raise LimitNOFILE"
	}
	return start
}
