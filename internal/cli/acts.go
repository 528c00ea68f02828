package cli

import (
	"context"
	"os"
	"os/user"
	"time"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/store"
)

// actPatience bounds how long a verb waits until what it did is among the events.
const actPatience = 2 * time.Second

// did notes that a verb has changed something, for "resqued events". It is written when the verb has
// come to its end. N is how many jobs or other things it concerned; without any nothing was done.
func (a *cli) did(kind store.EventKind, subject, text string, n int) {
	if n > 0 {
		a.acts = append(a.acts, act(kind, subject, text, n))
	}
}

// act is something that whoever runs this program has done.
func act(kind store.EventKind, subject, text string, n int) store.Event {
	return store.Event{Kind: kind, By: whoami(), Via: "cli", Subject: subject, Text: text, Count: int64(n)}
}

// writeActs writes what the verb has done. What cannot be written is only missing there: it was done
// all the same.
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

// whoami is who runs this program, and where: "alice@web1".
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
