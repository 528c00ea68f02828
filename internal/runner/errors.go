package runner

import (
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxMessage bounds the message of a failure, maxFrame a line of its backtrace, in bytes;
	// maxFrames bounds their number.
	maxMessage = 8 << 10
	maxFrame   = 1 << 10
	maxFrames  = 200
)

// JobError is the error of a job's code.
type JobError struct {
	exception, message string
	backtrace          []string
}

// newJobError makes a printable JobError from a runner's line.
func newJobError(a *answer) *JobError {
	e := &JobError{exception: wire.Printable(a.exception, shownName), message: wire.PrintableLines(a.message, maxMessage)}
	if e.exception == "" {
		e.exception = "Resqued::RunnerError"
	}
	for _, frame := range a.backtrace {
		e.backtrace = append(e.backtrace, wire.Printable(frame, maxFrame))
	}
	return e
}

func (e *JobError) Error() string { return e.message }

// Exception is the class name of the exception.
func (e *JobError) Exception() string { return e.exception }

// Backtrace is the exception's backtrace, innermost frame first.
func (e *JobError) Backtrace() []string { return e.backtrace }

// EndError says how the process of a job has ended.
type EndError struct {
	Runner string
	PID    int
	How    string
	// Stderr is the beginning and the end of its stderr, printable.
	Stderr string
}

func (e *EndError) Error() string { return e.brief() + program.Said(e.Stderr) }

func (e *EndError) brief() string {
	return fmt.Sprintf("process %d of runner %s %s", e.PID, wire.Printable(e.Runner, shownName), e.How)
}

// Exception is the exception name in the failure record.
func (e *EndError) Exception() string { return "Resqued::RunnerEnded" }

func stubborn(after time.Duration) string {
	return fmt.Sprintf("was killed, because its job did not end within %s after it was told to", after)
}

type absentError struct {
	runner string
	why    error // the error of the last unusable process; may be nil
}

func (e *absentError) Error() string {
	text := fmt.Sprintf("runner %s has no process for the job", wire.Printable(e.runner, shownName))
	if e.why != nil {
		text += ": " + e.why.Error()
	}
	return text
}

func (e *absentError) Unwrap() error { return e.why }
