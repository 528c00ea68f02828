package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	candidates = 8
	// payloadShown limits a payload in text, in bytes.
	payloadShown = 4096
)

// pick returns the jobs that names match, each once.
func (a *cli) pick(views []*view.Job, names []string) ([]*view.Job, error) {
	picked, err := view.FindJobs(views, names)
	if several, ok := errors.AsType[*view.AmbiguousJobError](err); ok {
		return nil, usage("Write more of it.", "%q may be any of %d running jobs: %s",
			wire.Printable(several.Name, 200), len(several.Jobs), nameRuns(several.Jobs))
	}
	return picked, lookup(err, a.again()+" jobs", nil)
}

// nameRuns lists jobs by names that distinguish them.
func nameRuns(views []*view.Job) string {
	var b strings.Builder
	for i, v := range views {
		if i == candidates {
			b.WriteString(" and " + strconv.Itoa(len(views)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(runName(v))
	}
	return b.String()
}

func runName(v *view.Job) string {
	return wire.Printable(v.Short, 200) + " " + jobText(v.Class, string(v.Args))
}

func runNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, err := view.Jobs(ctx, s)
	var names []string
	for _, v := range views {
		names = append(names, v.Short, v.Name)
	}
	return names, err
}

func (a *cli) showJobs(ctx context.Context, s *store.Store, names []string) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	views, err := a.pick(all, names)
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, v := range views {
		v.Detail()
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.runText(v))
	}
	if !a.forPeople() {
		return a.print(jobListing(views, false))
	}
	return a.printText(b.String())
}

func (a *cli) runText(v *view.Job) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + strings.Repeat(" ", 9-len(name)) + wire.Printable(value, 0) + "\n")
		}
	}
	line("id", v.ID)
	line("class", v.Class)
	line("args", string(v.Args))
	line("queue", v.Queue)
	b.WriteString("state    " + a.paint(jobColour(v.State), v.State) + "\n")
	if !v.Started.IsZero() {
		line("started", v.Started.UTC().Format(time.RFC3339)+" ("+view.Age(time.Duration(v.AgeS)*time.Second)+" ago)")
	}
	line("worker", v.Worker)
	line("process", v.Process)
	if r := v.Runner; r != nil {
		line("runner", fmt.Sprintf("%s, pid %d", r.Runner, r.PID))
	}
	line("token", v.Token)
	line("lock", v.Lock)
	if v.Fence > 0 {
		line("fence", strconv.FormatInt(v.Fence, 10))
	}
	if v.Deaths > 0 {
		line("deaths", strconv.Itoa(v.Deaths))
	}
	payload := v.Payload
	if len(payload) > payloadShown {
		payload = payload[:payloadShown] + "… (" + view.Size(int64(len(payload))) + " in all)"
	}
	line("payload", payload)
	return b.String()
}
