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

// pickJobs returns the jobs that names match, each once.
func pickJobs(s *session, views []*view.Job, names []string) ([]*view.Job, error) {
	picked, err := view.FindJobs(views, names)
	if several, ok := errors.AsType[*view.AmbiguousJobError](err); ok {
		return nil, usage("Write more of it.", "%q may be any of %d running jobs: %s",
			wire.Printable(several.Name, 200), len(several.Jobs), nameRuns(several.Jobs))
	}
	return picked, s.lookup(err, "jobs")
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

func showJobs(ctx context.Context, s *session, names []string) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	views, err := pickJobs(s, all, names)
	if err != nil {
		return err
	}
	for _, v := range views {
		v.Detail()
	}
	return showEach(s.output, jobListing(views), views, s.runText)
}

func (out *output) runText(v *view.Job) string {
	d := details{at: 9}
	d.line("id", v.ID)
	d.line("class", v.Class)
	d.line("args", string(v.Args))
	d.line("queue", v.Queue)
	d.painted("state", out.paint(jobColours.of(v.State), v.State))
	if !v.Started.IsZero() {
		d.line("started", v.Started.UTC().Format(time.RFC3339)+" ("+view.Age(time.Duration(v.AgeS)*time.Second)+" ago)")
	}
	d.line("worker", v.Worker)
	d.line("process", v.Process)
	if r := v.Runner; r != nil {
		d.line("runner", fmt.Sprintf("%s, pid %d", r.Runner, r.PID))
	}
	d.line("token", v.Token)
	d.line("lock", v.Lock)
	if v.Fence > 0 {
		d.line("fence", strconv.FormatInt(v.Fence, 10))
	}
	if v.Deaths > 0 {
		d.line("deaths", strconv.Itoa(v.Deaths))
	}
	payload := v.Payload
	if len(payload) > payloadShown {
		payload = payload[:payloadShown] + "… (" + view.Size(int64(len(payload))) + " in all)"
	}
	d.line("payload", payload)
	return d.String()
}
