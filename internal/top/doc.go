// Package top shows queues, worker processes and running jobs in a terminal and follows them. A
// model holds what is shown: keys and snapshots change it, and it renders itself as lines. Run
// is the loop around it that reads keys, takes snapshots and draws what has changed.
package top

import (
	"context"

	"github.com/resqued/resqued/internal/view"
)

// Source is what is looked at, and how it is changed. Its methods are called by several
// goroutines.
type Source interface {
	// Snap looks at everything once.
	Snap(ctx context.Context) (*view.Snapshot, error)
	// Pause pauses a queue, or resumes it, and says what came of it.
	Pause(ctx context.Context, queue string, pause bool) (said string, err error)
	// Kill asks a running job to stop, and says what came of it.
	Kill(ctx context.Context, job *view.Job) (said string, err error)
}

// Kind is what a command does.
type Kind int

// The kinds of commands.
const (
	None    Kind = iota
	Quit         // end the program
	Suspend      // stop the program, as ^Z does
	Redraw       // draw the whole screen
	Look         // take a snapshot now
	Pause        // pause Queue if On, else resume it
	Kill         // kill Job
)

// Command is what a key asks of the loop.
type Command struct {
	Kind  Kind
	Queue string
	On    bool
	Job   *view.Job
}
