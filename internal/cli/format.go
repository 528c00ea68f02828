package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
)

// kind is a verb's effect on Redis.
type kind string

const (
	// shows is for verbs that show changing data; they have --watch.
	shows kind = "shows"
	// reads is for other verbs that change nothing.
	reads kind = "reads"
	// adds is for verbs that only add, or that use only Ruby's keys. They work next to a newer
	// version, which can read what this one writes.
	adds kind = "adds"
	// edits is for verbs that change what other programs wrote below resqued:. They refuse if a
	// newer version wrote what this one cannot read.
	edits kind = "edits"
	// daemon is for verbs that handle signals themselves.
	daemon kind = "daemon"
	// noRedis is for verbs that work on files, processes or PostgreSQL.
	noRedis kind = "no redis"
)

func is(c *cobra.Command, k kind) bool { return c.Annotations["kind"] == string(k) }

type formatChecker interface {
	CheckFormat(ctx context.Context) error
}

// checkFormat returns an error if a verb would change data that this version cannot read. A verb
// that only reads gets a warning that its result may be incomplete.
func (a *cli) checkFormat(c *cobra.Command, s formatChecker) error {
	unread, ok := errors.AsType[*rdb.FormatError](s.CheckFormat(c.Context()))
	if !ok {
		return nil // the verb itself will meet other errors
	}
	if is(c, edits) {
		return &problem{exit: exitFailed, code: "format", cause: unread, lines: []string{"nothing was changed: " + unread.Error()}}
	}
	a.warn("not all may be shown: %s", unread.Error())
	return nil
}
