package handler

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/resqued/resqued/internal/wire"
)

// The functions below which nothing belongs to the handler, and those of
// resqued's own that stand between.
const (
	guardFrame   = "github.com/resqued/resqued/internal/handler.guard"
	performFrame = "github.com/resqued/resqued/internal/handler.(*Set).Perform"
	ownFrame     = "github.com/resqued/resqued/internal/handler."
	lockFrame    = "github.com/resqued/resqued/internal/locket."
	rootFrame    = "github.com/resqued/resqued."
)

// Guard runs a function of the program on a goroutine of its own and returns its
// error, or what ended it instead of one: a panic, or runtime.Goexit.
func Guard(fn func() error) error { return guard(fn) }

// guard runs fn on a goroutine of its own and returns its error, or what ended
// it instead of one.
func guard(fn func() error) error {
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

// stack returns the frames of the code that panicked or left, innermost first,
// as Ruby's backtraces look: file:line:in 'function'. It is called by a deferred
// function, so the frames of the runtime that got there come first; they, those
// of this package and those of the standard wrappers are left out.
func stack() []string {
	pcs := make([]uintptr, 200)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var lines []string
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic" || f.Function == "runtime.Goexit":
			// What stands above ran after the panic (deferred functions).
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

// PanicError is a panic of a handler, of middleware or of a hook.
type PanicError struct {
	Value any
	stack []string
}

// Error shows the value.
func (e *PanicError) Error() string { return "panic: " + wire.Printable(fmt.Sprint(e.Value), 8<<10) }

// Exception is the name under which the failure is recorded.
func (e *PanicError) Exception() string { return "Resqued::Panic" }

// Backtrace holds the frames of the code that panicked, innermost first.
func (e *PanicError) Backtrace() []string { return e.stack }

// GoexitError says that a handler ended its goroutine instead of returning.
type GoexitError struct{ stack []string }

// Error says what happened.
func (e *GoexitError) Error() string {
	return "the handler ended its goroutine (runtime.Goexit) instead of returning"
}

// Exception is the name under which the failure is recorded.
func (e *GoexitError) Exception() string { return "Resqued::Goexit" }

// Backtrace holds the frames of the code that left, innermost first.
func (e *GoexitError) Backtrace() []string { return e.stack }
