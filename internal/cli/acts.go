package cli

import (
	"context"
	"os"
	"os/user"
	"time"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/store"
)

// actPatience limits how long a verb waits for its events to be written.
const actPatience = 2 * time.Second

// did notes a change of n things for "resqued events", written when the verb ends; 0 notes
// nothing.
func (a *cli) did(kind store.EventKind, subject, text string, n int) {
	if n > 0 {
		a.act(kind, subject, text, n)
	}
}

// act is did for a change of perhaps no things.
func (a *cli) act(kind store.EventKind, subject, text string, n int) {
	a.acts = append(a.acts, store.Event{Kind: kind, By: whoami(), Via: "cli", Subject: subject, Text: text, Count: int64(n)})
}

// writeActs writes the verb's events. Errors are ignored: the changes themselves are made.
func (a *cli) writeActs(ctx context.Context) {
	if len(a.acts) == 0 || a.loaded == nil {
		return
	}
	s, err := app.OpenStore(a.loaded.Config, "resqued-cli")
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), actPatience)
	defer cancel()
	for _, e := range a.acts {
		if err := s.NoteEvent(ctx, e); err != nil {
			if a.flags.verbose {
				a.warn("this is not among the events: %s", err)
			}
			return
		}
	}
}

// whoami is the user of this program, and the host: "alice@web1".
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if by := os.Getenv("SUDO_USER"); by != "" && by != name {
		name = by + " as " + name
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
