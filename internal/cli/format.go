package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
)

// Kinds of verbs, by what they do to Redis. A verb has one as its Annotations.
var (
	// shows is for verbs that show something that changes; they have --watch.
	shows = kind("shows")
	// reads is for other verbs that change nothing.
	reads = kind("reads")
	// adds is for verbs that only add, or that use keys of Ruby's alone. They work next to a newer
	// version, which reads what this one writes.
	adds = kind("adds")
	// edits is for verbs that change what others wrote below resqued:. They refuse that where a newer
	// version wrote what this one cannot read.
	edits = kind("edits")
	// daemon is for verbs that handle signals themselves.
	daemon = kind("daemon")
	// noRedis is for verbs that work on files, processes or PostgreSQL.
	noRedis = kind("no redis")
)

func kind(name string) map[string]string { return map[string]string{"kind": name} }

// is reports whether a verb is of a kind.
func is(c *cobra.Command, kind map[string]string) bool {
	return c.Annotations["kind"] == kind["kind"]
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
	if is(c, edits) {
		return &problem{exit: exitFailed, code: "format", cause: unread, lines: []string{"nothing was changed: " + unread.Error()}}
	}
	a.warn("not all may be shown: %s", unread.Error())
	return nil
}
