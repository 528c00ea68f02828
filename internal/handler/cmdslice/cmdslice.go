// Package cmdslice is the interface of longjob and the runner of commands: one slice of a long
// job worked by an external program. Package longjob makes the slices, internal/handler runs the
// program. Package resqued imports this package, because its Command carries the Func.
package cmdslice

import (
	"context"
	"encoding/json"
	"time"
)

// Slice is one slice of a long job while a command works it.
type Slice struct {
	// Args are the arguments of the run; the job has only its name.
	Args []json.RawMessage
	// Run names the run; Number and Fence are the slice's.
	Run           string
	Number, Fence int64
	// Units is how many units the run has done so far.
	Units int64
	// State is the run's state, a JSON object; Message is its line for people.
	State   []byte
	Message string

	// Over is closed when the slice is over: then the command's first process gets TERM. Ends is
	// the latest time for that. Grace is how long the command may continue before KILL.
	Over  <-chan struct{}
	Ends  time.Time
	Grace time.Duration

	// Report takes a line of descriptor 3 without its line break, at most MaxLine bytes, and
	// returns the reply for descriptor 4, if any. On error the command is stopped and has failed
	// with it, and no more lines are taken.
	Report  func(ctx context.Context, line Line) (reply []byte, err error)
	MaxLine int

	// End is how the command has ended, unless that alone was a failure.
	End End
	// Stderr is the end of its stderr.
	Stderr string
}

// Line is a line from a command on descriptor 3.
type Line struct {
	Text []byte
	// Left is the number of bytes left out.
	Left int
	// Torn: the command ended before the line break.
	Torn bool
}

// End is how the command of a slice has ended.
type End byte

const (
	// ByItself: with exit code 0, before it was told that the slice is over.
	ByItself End = iota
	// Told: with exit code 0, after it was told.
	Told
	// ByTerm: by the TERM that told it, or with exit code 143, with which shells and others
	// report that.
	ByTerm
	// ByKill: by KILL, after the whole grace.
	ByKill
)

// RunFunc runs the command for a slice.
type RunFunc = func(ctx context.Context, s *Slice) error

// Func makes a slice of a *resqued.Job and calls run with it.
type Func func(ctx context.Context, job any, run RunFunc) error

var funcOf func(command any) *Func

// Provide sets how to find the Func of a *resqued.Command. Package resqued calls it once, when
// it is initialized.
func Provide(find func(command any) *Func) { funcOf = find }

// Of returns the Func of a *resqued.Command, nil if its jobs are not slices of long jobs. It
// panics for any other type.
func Of(command any) Func { return *funcOf(command) }

// Set gives a *resqued.Command its Func. It panics for any other type.
func Set(command any, f Func) { *funcOf(command) = f }
