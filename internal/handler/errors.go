package handler

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

// plainError is the exception for errors without a meaningful type.
const plainError = "Error"

// Describe returns an error's texts for a failure record. An error may name its exception and
// backtrace by methods Exception() string and Backtrace() []string. Otherwise the exception is
// the Go type of the first error in its chain with a meaningful type, or "Error".
func Describe(err error) (exception, message string, backtrace []string) {
	if err == nil {
		return "", "", nil
	}
	var named interface{ Exception() string }
	if errors.As(err, &named) {
		exception = named.Exception()
	}
	if exception == "" {
		exception = typeName(err)
	}
	return exception, textOf(err), backtraceOf(err)
}

// TimeoutError says that a job ran longer than its class or its class lock allows. It wraps
// resqued.ErrTimeout.
type TimeoutError struct {
	Limit time.Duration
	// Lock: the limit is the lock's.
	Lock bool
	// Err is the job's error when its time was up.
	Err error
}

func (e *TimeoutError) Error() string {
	what := "ran"
	if e.Lock {
		what = "held its class lock"
	}
	return fmt.Sprintf("%s longer than %s: %s", what, shortDuration(e.Limit), textOf(e.Err))
}

func (e *TimeoutError) Unwrap() error { return resqued.ErrTimeout }

// Exception is the exception name in the failure record.
func (e *TimeoutError) Exception() string { return "Resqued::Timeout" }

// Backtrace is the backtrace of Err.
func (e *TimeoutError) Backtrace() []string { return backtraceOf(e.Err) }

// StoppedError says that a job's context ended, for example by a kill. It wraps the cause.
type StoppedError struct {
	// Cause is why the context ended: resqued.ErrKilled, resqued.ErrLockLost.
	Cause error
	// Err is the job's error then.
	Err error
}

func (e *StoppedError) Error() string { return textOf(e.Cause) + ": " + textOf(e.Err) }

func (e *StoppedError) Unwrap() error { return e.Cause }

// Exception is the exception name in the failure record.
func (e *StoppedError) Exception() string {
	switch {
	case errors.Is(e.Cause, resqued.ErrKilled):
		return "Resque::DirtyExit"
	case errors.Is(e.Cause, resqued.ErrLockLost):
		return "Resqued::LockLost"
	default:
		return "Resqued::Stopped"
	}
}

// Backtrace is the backtrace of Err.
func (e *StoppedError) Backtrace() []string { return backtraceOf(e.Err) }

// stoppedBy returns the error of a job that failed after its context had ended.
func stoppedBy(cause error, limit time.Duration, err error) error {
	if errors.Is(cause, resqued.ErrTimeout) {
		// A lock's cause knows its own limit.
		if lock, ok := errors.AsType[interface {
			error
			LockTimeout() time.Duration
		}](cause); ok {
			return &TimeoutError{Limit: lock.LockTimeout(), Lock: true, Err: err}
		}
		return &TimeoutError{Limit: limit, Err: err}
	}
	return &StoppedError{Cause: cause, Err: err}
}

// brokenError replaces a handler's error that cannot be inspected.
type brokenError struct {
	err   error
	value any // the panic of its method
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("%T, which is broken (is it a nil pointer in an error?): %s", e.err, wire.Printable(fmt.Sprint(e.value), 200))
}

// Exception is the exception name in the failure record.
func (e *brokenError) Exception() string { return reflect.TypeOf(e.err).String() }

// sound returns err, or a replacement if inspecting it panics: Unwrap, Is and others are the
// handler's code, and a nil pointer in an error is a common mistake. It calls every method that
// is used later, where a panic would end the process.
func sound(err error) (result error) {
	if err == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			result = &brokenError{err: err, value: v}
		}
	}()
	_ = isFailure(err)
	Describe(err)
	return err
}

// isFailure distinguishes failures from errors that only end a job, and from deaths, after which
// other code decides whether the job runs again.
func isFailure(err error) bool {
	var requeue *resqued.RequeueError
	var death *jobctx.DeathError
	return !errors.Is(err, resqued.Discard) && !errors.As(err, &requeue) && !errors.As(err, &death)
}

func backtraceOf(err error) []string {
	var traced interface{ Backtrace() []string }
	if errors.As(err, &traced) {
		return traced.Backtrace()
	}
	return nil
}

// textOf returns an error's text. Error is the handler's code and may panic: a nil pointer in an
// error is a common mistake.
func textOf(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T, whose text is broken: %s", err, wire.Printable(fmt.Sprint(v), 200))
		}
	}()
	return err.Error()
}

// wordless are types that say nothing about an error.
var wordless = []string{
	"errors.errorString", "errors.joinError", "fmt.wrapError", "fmt.wrapErrors", "fmt.fmtError",
}

// typeName returns the first meaningful type in an error's chain, as Go prints it.
func typeName(err error) string {
	for err != nil {
		name := reflect.TypeOf(err).String()
		if !slices.Contains(wordless, strings.TrimPrefix(name, "*")) {
			return name
		}
		switch e := err.(type) { //nolint:errorlint // walks the chain itself
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return typeName(firstOf(e.Unwrap()))
		default:
			return plainError
		}
	}
	return plainError
}

func firstOf(list []error) error {
	for _, err := range list {
		if typeName(err) != plainError {
			return err
		}
	}
	return nil
}

// shortDuration writes 2m0s as 2m.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
