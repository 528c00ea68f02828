package resqued

import (
	"context"
	"time"
)

// CommandSlice is one slice of a long job while a command performs it. Package longjob
// makes it, the daemon runs the command with it; a program has no use for it.
type CommandSlice struct {
	// Args are the arguments of the run. The job has its name only.
	Args Args
	// Run names the run; Number and Fence are those of the slice.
	Run           string
	Number, Fence int64
	// State is what the run remembers, a JSON object; Message its line for people.
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
	Report  func(ctx context.Context, line ReportLine) (reply []byte, err error)
	MaxLine int

	// End is how the command has ended, where that was no failure by itself.
	End CommandEnd
	// Stderr is the end of what it wrote there.
	Stderr string
}

// ReportLine is a line that a command wrote on descriptor 3.
type ReportLine struct {
	Text []byte
	// Left is how many bytes of it are left out.
	Left int
	// Torn: the command ended before it had written a line break.
	Torn bool
}

// CommandEnd is how the command of a slice has ended.
type CommandEnd byte

// The ends of a command.
const (
	// ByItself: with exit code 0, before it was told that the slice is over.
	ByItself CommandEnd = iota
	// Told: with exit code 0, after it was told.
	Told
	// ByTerm: by the TERM that told it, or with exit code 143, by which shells and others
	// say so.
	ByTerm
	// ByKill: by KILL, because it ran on for the whole grace.
	ByKill
)
