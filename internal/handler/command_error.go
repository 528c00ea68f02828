package handler

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/launch"
)

// CommandError says that a command failed.
type CommandError struct {
	// Program is the first word of the command.
	Program string
	// ExitCode is -1 if a signal ended the program.
	ExitCode int
	Signal   syscall.Signal
	CoreDump bool
	// Stderr is the end of what the program wrote there, printable.
	Stderr string
}

// Error says how the program ended and shows the end of its stderr.
func (e *CommandError) Error() string {
	how := fmt.Sprintf("exit code %d", e.ExitCode)
	if e.Signal != 0 {
		name := unix.SignalName(e.Signal)
		if name == "" {
			name = fmt.Sprintf("signal %d", int(e.Signal))
		}
		how = "ended by " + name
		if e.CoreDump {
			how += " (core dumped)"
		}
	}
	return fmt.Sprintf("%s: %s%s", e.Program, how, after(e.Stderr))
}

// Exception is the name under which the failure is recorded.
func (e *CommandError) Exception() string { return "Resqued::CommandFailed" }

// ExitStatus is what a Retry of the class compares with its exit codes.
func (e *CommandError) ExitStatus() int { return e.ExitCode }

// StartError says that a command could not be started.
type StartError struct {
	Program string
	Err     error
	// Hint says what to do; may be empty.
	Hint string
}

// Error says what went wrong and what to do.
func (e *StartError) Error() string {
	err := e.Err
	if failed, ok := errors.AsType[*launch.Error](err); ok {
		err = failed.Err
	}
	var lookup *exec.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &lookup):
		err = lookup.Err // without the name, which stands there already
	case errors.As(err, &errno):
		err = errno
	}
	text := fmt.Sprintf("start %q: %s", e.Program, err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns what the system said.
func (e *StartError) Unwrap() error { return e.Err }

// Exception is the name under which the failure is recorded.
func (e *StartError) Exception() string { return "Resqued::CommandNotStarted" }

// after appends stderr to a message.
func after(stderr string) string {
	switch {
	case stderr == "":
		return ", nothing on stderr"
	case strings.Contains(stderr, "\n"):
		return ":\n" + stderr
	default:
		return ": " + stderr
	}
}
