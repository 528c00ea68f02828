package handler

import (
	"fmt"
	"syscall"

	"github.com/resqued/resqued/internal/sys/program"
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
		how = program.EndedBy(e.Signal, e.CoreDump)
	}
	return fmt.Sprintf("%s: %s%s", e.Program, how, program.Said(e.Stderr))
}

// Exception is the exception name in the failure record.
func (e *CommandError) Exception() string { return "Resqued::CommandFailed" }

// ExitStatus is the exit code for the class's Retry.
func (e *CommandError) ExitStatus() int { return e.ExitCode }
