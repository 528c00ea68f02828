package handler

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// CommandError says that a command failed.
type CommandError struct {
	Program string
	// ExitCode is -1 if a signal ended the program.
	ExitCode int
	Signal   syscall.Signal
	CoreDump bool
	// Stderr is the end of the program's stderr, printable.
	Stderr string
}

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

// Exception is the exception name in the failure record.
func (e *CommandError) Exception() string { return "Resqued::CommandFailed" }

// ExitStatus is the exit code for the class's Retry.
func (e *CommandError) ExitStatus() int { return e.ExitCode }

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
