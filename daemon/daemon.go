// Package daemon gives a program of its own the whole of resqued: the daemon
// and its command line, with the program's Go functions as handlers beside the
// commands that its configuration names.
package daemon

import (
	"os"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cli"
)

// Main runs the resqued command line with handlers and ends the process with
// its exit code. Call it first thing in main: worker processes are the same
// program, started again, and Main is where they find their work.
func Main(handlers *resqued.Handlers) {
	os.Exit(cli.Main(handlers, os.Args[1:]))
}
