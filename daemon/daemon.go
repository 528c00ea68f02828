// Package daemon makes a program a complete resqued: the daemon and its command line, with the
// program's Go functions as handlers alongside the commands of its configuration.
package daemon

import (
	"os"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cli"
)

// Main runs the resqued command line with handlers and ends the process with its exit code. Call
// it first in main: worker processes are the same program, started again, and Main also runs them.
func Main(handlers *resqued.Handlers) {
	os.Exit(cli.Main(handlers, os.Args[1:]))
}
