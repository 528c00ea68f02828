package runner

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxMessage bounds the message of a failure, and maxFrame a line of its backtrace, in
	// bytes; maxFrames how many of these there are.
	maxMessage = 8 << 10
	maxFrame   = 1 << 10
	maxFrames  = 200
)

// JobError is the error with which the code of a job has failed.
type JobError struct {
	exception, message string
	backtrace          []string
}

// newJobError makes one of what a runner says, printable.
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

// Error is the message of the exception.
func (e *JobError) Error() string { return e.message }

// Exception is the name of its class.
func (e *JobError) Exception() string { return e.exception }

// Backtrace is that of the exception, innermost first.
func (e *JobError) Backtrace() []string { return e.backtrace }

// EndError says that the process of a job has ended, and how.
type EndError struct {
	// Runner is the name of the runner, PID the number of the process.
	Runner string
	PID    int
	// How it ended.
	How string
	// Stderr is the beginning and the end of what it wrote there, printable.
	Stderr string
}

// Error says how it ended and shows the end of its stderr.
func (e *EndError) Error() string {
	text := e.brief()
	switch {
	case e.Stderr == "":
		return text + ", nothing on stderr"
	case strings.Contains(e.Stderr, "\n"):
		return text + ":\n" + e.Stderr
	}
	return text + ": " + e.Stderr
}

// brief says how it ended, in one line.
func (e *EndError) brief() string {
	return fmt.Sprintf("process %d of runner %s %s", e.PID, wire.Printable(e.Runner, shownName), e.How)
}

// Exception is the name under which the failure is recorded.
func (e *EndError) Exception() string { return "Resqued::RunnerEnded" }

// stubborn is how a process ends whose job did not end when it was told to.
func stubborn(after time.Duration) string {
	return fmt.Sprintf("was killed, because its job did not end within %s after it was told to", after)
}

// ending returns the end of a text, at most max bytes and an ellipsis.
func ending(text string, max int) string {
	if len(text) <= max {
		return text
	}
	text = text[len(text)-max:]
	for !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return "…" + text
}

// absentError says that no process could be had for a job.
type absentError struct {
	runner string
	why    error // of the last one that could not be used; may be nil
}

func (e *absentError) Error() string {
	text := fmt.Sprintf("runner %s has no process for the job", wire.Printable(e.runner, shownName))
	if e.why != nil {
		text += ": " + e.why.Error()
	}
	return text
}

func (e *absentError) Unwrap() error { return e.why }

// classError says that a runner does not perform a class.
type classError struct{ runner, class string }

// Error names both.
func (e *classError) Error() string {
	return fmt.Sprintf(`runner %s does not perform class "%s": it is not among its classes in the configuration`,
		wire.Printable(e.runner, shownName), wire.Printable(e.class, shownName))
}

// Exception is the name under which the failure is recorded.
func (e *classError) Exception() string { return "Resqued::UnknownClass" }
