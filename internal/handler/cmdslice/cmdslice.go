// Package cmdslice is what longjob and the runner of commands say to each other: one
// slice of a long job that an external program works. Package longjob makes the slices,
// internal/handler runs the program. Package resqued imports this package, because its
// Command carries the Func.
package cmdslice

import (
	"context"
	"encoding/json"
	"time"
)

// Slice is one slice of a long job while a command works it.
type Slice struct {
	// Args are the arguments of the run. The job has its name only.
	Args []json.RawMessage
	// Run names the run; Number and Fence are those of the slice.
	Run           string
	Number, Fence int64
	// Units is how many units the run has done before.
	Units int64
	// State is what the run remembers, a JSON object; Message is its line for people.
	State   []byte
	Message string

	// Over is closed when the slice is over: the command's first process gets TERM then.
	// Ends is when that is at the latest, and Grace for how long the command may run on
	// before it gets KILL.
	Over  <-chan struct{}
	Ends  time.Time
	Grace time.Duration

	// Report takes a line of descriptor 3, at most MaxLine bytes of it, without its line
	// break, and returns the line that the command finds on descriptor 4, if there is one.
	// An error stops the command, which has failed with it, and no further line is taken.
	Report  func(ctx context.Context, line Line) (reply []byte, err error)
	MaxLine int

	// End is how the command has ended, where that was not a failure by itself.
	End End
	// Stderr is the end of what it wrote there.
	Stderr string
}

// Line is a line that a command wrote on descriptor 3.
type Line struct {
	Text []byte
	// Left is how many bytes of it are left out.
	Left int
	// Torn: the command ended before it had written a line break.
	Torn bool
}

// End is how the command of a slice has ended.
type End byte

// The ends of a command.
const (
	// ByItself: with exit code 0, before it was told that the slice is over.
	ByItself End = iota
	// Told: with exit code 0, after it was told.
	Told
	// ByTerm: by the TERM that told it, or with exit code 143, by which shells and others
	// say so.
	ByTerm
	// ByKill: by KILL, because it ran on for the whole grace.
	ByKill
)

// RunFunc runs the command for a slice.
type RunFunc = func(ctx context.Context, s *Slice) error

// Func makes a slice of a *resqued.Job and calls run with it.
type Func func(ctx context.Context, job any, run RunFunc) error

var funcOf func(command any) *Func

// Provide tells this package how to find the Func of a *resqued.Command. Package resqued
// calls it once, when it is initialized.
func Provide(find func(command any) *Func) { funcOf = find }

// Of returns the Func of a *resqued.Command, which is nil where its jobs are not slices
// of long jobs. It panics if command is of another type.
func Of(command any) Func { return *funcOf(command) }

// Set gives a *resqued.Command its Func. It panics if command is of another type.
func Set(command any, f Func) { *funcOf(command) = f }
