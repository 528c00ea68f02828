package cli

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// leastPart is how much of a job's name has to be written: less would soon be
	// that of another job.
	leastPart = 4
	// manyRuns is from how many jobs on the names are whole: it takes too long to find
	// out which part of them no other has.
	manyRuns = 2000
	// candidates bounds how many jobs a message names.
	candidates = 8
	// payloadShown bounds a payload in text, in bytes.
	payloadShown = 4096
)

// random are ids of which no two have the same beginning: those of the Files.com
// fork, and UUIDs of version 4. Others, counted up or sorted by time, stay whole,
// so that the name of a job that was listed never is that of a later one.
var random = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{32}$|^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$`)
})

// shorten finds for each job the shortest name that is certain to stand for it.
func shorten(views []*runView) {
	for _, v := range views {
		names := []string{v.ID}
		if v.run.Proc != "" {
			names = append(names, v.run.String())
		}
		if len(views) > manyRuns {
			v.name = names[len(names)-1]
			v.short = v.name
			continue
		}
		for _, name := range names {
			if v.name = name; is(views, name, v) {
				break
			}
		}
		v.short = v.name
		part := ""
		switch {
		case v.name == v.run.String():
			// From the master's pid on: nor is that ever used again.
			if _, rest, ok := strings.Cut(v.name, ":"); ok {
				_, part, _ = strings.Cut(rest, ":")
			}
		case random().MatchString(v.name):
			part = v.name[:idLength]
		}
		if part != "" && is(views, part, v) {
			v.short = part
		}
	}
}

// is reports whether a name stands for v and for no other job.
func is(views []*runView, name string, v *runView) bool {
	found := find(views, name)
	return len(found) == 1 && found[0] == v
}

// find returns the jobs that a name stands for: first the run of that name, then
// those with that id, then those whose names it is a part of.
func find(views []*runView, name string) []*runView {
	var exact, part []*runView
	for _, v := range views {
		run := ""
		if v.run.Proc != "" {
			run = v.run.String()
		}
		if run == name {
			return []*runView{v}
		}
		// What is not printable is typed as it looks.
		shown := wire.Printable(v.ID, 0)
		switch {
		case v.ID == name || shown == name || wire.Printable(v.ID, maxCell) == name:
			exact = append(exact, v)
		case len(name) < leastPart:
		case strings.HasPrefix(v.ID, name), strings.HasSuffix(v.ID, name), strings.HasPrefix(shown, name),
			strings.HasPrefix(run, name), strings.HasSuffix(run, name):
			part = append(part, v)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return part
}

// pick returns the jobs that names stand for, each once.
func (a *cli) pick(views []*runView, names []string) ([]*runView, error) {
	var picked []*runView
	for _, name := range names {
		found := find(views, name)
		switch len(found) {
		case 1:
		case 0:
			known := make([]string, 0, 2*len(views))
			for _, v := range views {
				known = append(known, v.short, v.name)
			}
			return nil, notFound("running job", name, known, a.name+" jobs")
		default:
			return nil, usage("Write more of it.", "%q may be any of %d running jobs: %s", wire.Printable(name, 200), len(found), nameRuns(found))
		}
		if !slices.Contains(picked, found[0]) {
			picked = append(picked, found[0])
		}
	}
	return picked, nil
}

// nameRuns names some jobs so that each can be told from the others.
func nameRuns(views []*runView) string {
	var b strings.Builder
	for i, v := range views {
		if i == candidates {
			b.WriteString(" and " + strconv.Itoa(len(views)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.text())
	}
	return b.String()
}

// text is a job in a message.
func (v *runView) text() string {
	return wire.Printable(v.short, 200) + " " + jobText(v.Class, string(v.Args))
}

// runNames are the names of running jobs for a shell to complete.
func runNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, err := runs(ctx, s)
	var names []string
	for _, v := range views {
		names = append(names, v.short, v.name)
	}
	return names, err
}

func (a *cli) showJobs(ctx context.Context, s *store.Store, names []string) error {
	all, err := runs(ctx, s)
	if err != nil {
		return err
	}
	views, err := a.pick(all, names)
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, v := range views {
		v.Process, v.Token, v.Lock = v.run.Proc, v.run.Token, v.record.LockKey
		v.Fence, v.Deaths, v.Payload = v.record.Fence, v.record.Deaths, string(v.payload)
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.runText(v))
	}
	if a.flags.output == outJSON || a.flags.output == outName {
		return a.print(jobListing(views, false))
	}
	return a.printText(b.String())
}

// runText is one running job for a person to read.
func (a *cli) runText(v *runView) string {
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
	if !v.started.IsZero() {
		line("started", v.started.UTC().Format(time.RFC3339)+" ("+age(time.Duration(v.AgeS)*time.Second)+" ago)")
	}
	line("worker", v.Worker)
	line("process", v.Process)
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
		payload = payload[:payloadShown] + "… (" + size(int64(len(payload))) + " in all)"
	}
	line("payload", payload)
	return b.String()
}
