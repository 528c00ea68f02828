package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// eventBuffer is how many lines wait for a slow terminal. Others are dropped, so that jobs
// continue.
const eventBuffer = 256

// eventPatience is how long a process that ends waits for such a terminal.
const eventPatience = time.Second

type event struct {
	Event string          `json:"event"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	Queue string          `json:"queue"`
	MS    int64           `json:"ms"`
	Error string          `json:"error,omitempty"`
}

// eventWriter prints each finished job in one write, so that lines of several processes don't mix.
type eventWriter struct {
	mode  app.DevMode
	lines chan string
	done  chan struct{}
}

func newEventWriter(mode app.DevMode) app.Observer {
	e := &eventWriter{mode: mode, lines: make(chan string, eventBuffer), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for line := range e.lines {
			_, _ = io.WriteString(os.Stdout, line)
		}
	}()
	return e
}

// Observe is called by the worker process's loop and never blocks.
func (e *eventWriter) Observe(ev app.Ended) {
	select {
	case e.lines <- e.line(ev):
	default:
	}
}

// Close waits at most eventPatience for the remaining lines: the output may be stopped.
func (e *eventWriter) Close() {
	close(e.lines)
	select {
	case <-e.done:
	case <-time.After(eventPatience):
	}
}

func (e *eventWriter) line(ev app.Ended) string {
	args := e.mode.Redact.Args(ev.Job.Class, json.RawMessage(ev.Job.Args.String()))
	failure := ""
	if ev.Err != nil {
		failure = ev.Err.Error()
	}
	if e.mode.JSON {
		text, err := encodeJSON(event{
			Event: ev.Result, Class: ev.Job.Class, Args: args, Queue: ev.Job.Queue,
			MS: ev.Ran.Milliseconds(), Error: failure,
		})
		if err != nil {
			return ""
		}
		return string(text)
	}
	colour, note := "", ""
	switch ev.Result {
	case app.Done:
		colour = green
	case app.Retried:
		note = "  " + wire.Printable(view.Summary(failure), 200)
	case app.Failed:
		colour, note = red, "  "+wire.Printable(view.Summary(failure), 200)
	}
	word := ev.Result
	out := output{coloured: e.mode.Colour}
	return out.label(colour, word) + jobText(ev.Job.Class, string(args)) + " " + milliseconds(ev.Ran) + note + "\n"
}

// label is the first word of a line of "resqued dev", padded to its column.
func (out *output) label(colour, word string) string {
	return out.paint(colour, word) + strings.Repeat(" ", max(1, 11-len(word)))
}

func milliseconds(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
