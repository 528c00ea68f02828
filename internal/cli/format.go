package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
)

// editing are the verbs that change what stands below resqued: and was written by others. They
// refuse to do so where a newer version has written what this one does not read. What only adds
// (enqueue), or uses keys of Ruby's alone (queues pause), is not among them: those who read a
// format read the one before it.
var editing = []string{
	"failed retry", "failed rm", "hosts dead", "jobs kill", "jobs move", "jobs rm", "locks release", "locks repair", "longjobs cancel", "longjobs pause", "longjobs resume", "longjobs requeue",
	"longjobs recurring pause", "longjobs recurring resume", "longjobs recurring rm",
	"parked retry", "parked rm", "queues move", "queues prune", "queues purge", "queues rm", "queues unline", "schedule rm", "schedule run",
	"workers drain", "workers pause", "workers recycle", "workers resume",
}

// formatChecker is a connection to Redis that knows the format of what stands there.
type formatChecker interface {
	CheckFormat(ctx context.Context) error
}

// checkFormat returns an error if a verb would change what this version does not read. A verb
// that only looks shows what it can, and a warning says that there may be more.
func (a *cli) checkFormat(c *cobra.Command, s formatChecker) error {
	unread, ok := errors.AsType[*rdb.FormatError](s.CheckFormat(c.Context()))
	if !ok {
		return nil // whatever else is wrong the verb itself will meet
	}
	if slices.Contains(editing, verbOf(c)) {
		return &problem{exit: exitFailed, code: "format", cause: unread, lines: []string{"nothing was changed: " + unread.Error()}}
	}
	a.warn("not all may be shown: %s", unread.Error())
	return nil
}

// verbOf returns the name of a command without that of the program.
func verbOf(c *cobra.Command) string {
	_, verb, _ := strings.Cut(c.CommandPath(), " ")
	return verb
}
