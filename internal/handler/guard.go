package handler

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/resqued/resqued/internal/wire"
)

// guardFrame and performFrame are below all frames of a handler; the others are resqued's own in
// between.
const (
	guardFrame   = "github.com/resqued/resqued/internal/handler.Guard"
	performFrame = "github.com/resqued/resqued/internal/handler.(*Set).Perform"
	ownFrame     = "github.com/resqued/resqued/internal/handler."
	lockFrame    = "github.com/resqued/resqued/internal/locket."
	rootFrame    = "github.com/resqued/resqued."
)

// Guard runs a function of the program on its own goroutine and returns its error, or an error
// for a panic or runtime.Goexit.
func Guard(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		returned := false
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, stack: stack()}
			} else if !returned {
				err = &GoexitError{stack: stack()}
			}
			result <- err
		}()
		err = fn()
		returned = true
	}()
	return <-result
}

// stack returns the frames of the code that panicked or left, innermost first, like Ruby's
// backtraces: file:line:in 'function'. A deferred function calls it, so runtime frames come
// first. It leaves out those, this package's and the standard wrappers'.
func stack() []string {
	pcs := make([]uintptr, 200)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var lines []string
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic" || f.Function == "runtime.Goexit":
			// The frames so far are from deferred functions, after the panic.
			lines = lines[:0]
		case len(lines) > 0 && (strings.HasPrefix(f.Function, guardFrame) || f.Function == performFrame):
			return lines
		case f.Function == "" || strings.HasPrefix(f.Function, ownFrame), strings.HasPrefix(f.Function, lockFrame),
			strings.HasPrefix(f.Function, rootFrame):
		case strings.HasPrefix(f.Function, "runtime.") && len(lines) == 0:
			// How the runtime came to panic: panicmem, sigpanic, goPanicIndex.
		default:
			lines = append(lines, fmt.Sprintf("%s:%d:in '%s'", f.File, f.Line, f.Function))
		}
		if !more {
			return lines
		}
	}
}

// PanicError is a panic of a handler, middleware or hook.
type PanicError struct {
	Value any
	stack []string
}

func (e *PanicError) Error() string { return "panic: " + wire.Printable(fmt.Sprint(e.Value), 8<<10) }

// Exception is the exception name in the failure record.
func (e *PanicError) Exception() string { return "Resqued::Panic" }

// Backtrace is the panicking code's backtrace, innermost frame first.
func (e *PanicError) Backtrace() []string { return e.stack }

// GoexitError says that a handler ended its goroutine instead of returning.
type GoexitError struct{ stack []string }

func (e *GoexitError) Error() string {
	return "the handler ended its goroutine (runtime.Goexit) instead of returning"
}

// Exception is the exception name in the failure record.
func (e *GoexitError) Exception() string { return "Resqued::Goexit" }

// Backtrace is the leaving code's backtrace, innermost frame first.
func (e *GoexitError) Backtrace() []string { return e.stack }
