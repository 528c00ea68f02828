package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	linesAtOnce = 1000
	// maxTold limits how many failed lines are printed one by one.
	maxTold = 20
)

// jobLine is a line of "enqueue --json -".
type jobLine struct {
	Class string       `json:"class"`
	Args  resqued.Args `json:"args"`
	Queue string       `json:"queue"`
	In    string       `json:"in"`
	At    string       `json:"at"`
}

type lineFailure struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
	// Unknown: it may have been enqueued nevertheless.
	Unknown bool `json:"unknown,omitempty"`
}

type linesView struct {
	Lines      int           `json:"lines"`
	Enqueued   int           `json:"enqueued"`
	Delayed    int           `json:"delayed"`
	Duplicates int           `json:"duplicates"`
	Locked     int           `json:"locked"`
	Failed     int           `json:"failed"`
	Failures   []lineFailure `json:"failures"`
	worked

	jobs pushed
}

func (a *cli) enqueueLines(c *cobra.Command, queue string, when whenFlags) error {
	cfg, err := a.load(c)
	if several, ok := errors.AsType[*severalStores](err); ok {
		cfg, err = several.loaded, nil
	}
	if err != nil {
		return err
	}
	in, at, err := when.parse(time.Now())
	if err != nil {
		return err
	}
	defaults := client.EnqueueParams{Queue: queue, In: in, At: at}
	var jobs enqueuer
	if len(cfg.Stores) > 0 {
		jobs, err = a.clients(cfg)
	} else {
		jobs, err = a.client(cfg.Config)
	}
	if err != nil {
		return err
	}
	defer func() { _ = jobs.Close() }()
	v, err := a.pushLines(c.Context(), cfg, jobs, defaults)
	if err != nil {
		return fmt.Errorf("%w (after %s: %d were enqueued, %d delayed)", err, plural(v.Lines, "line"), v.Enqueued, v.Delayed)
	}
	v.worked = a.workedIn(c.Context(), cfg, v.jobs)
	if err := a.tellLines(v); err != nil {
		return err
	}
	a.warnUnworked(v.worked)
	if v.Failed > 0 {
		return failure("failed", "", "%d of %s were not enqueued", v.Failed, plural(v.Lines, "line"))
	}
	return nil
}

func (a *cli) pushLines(ctx context.Context, cfg *config.Resolved, jobs enqueuer, defaults client.EnqueueParams) (linesView, error) {
	v := linesView{Failures: []lineFailure{}, jobs: pushed{}}
	homes := map[string]string{} // class -> queue
	bar := a.progressOf("enqueued", 0)
	defer bar.done()
	lines := bufio.NewReaderSize(a.stdin, 1<<16)
	var batch []client.EnqueueParams
	var numbers []int
	for end := false; !end; {
		line, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF):
			end = true
		case err != nil:
			return v, fmt.Errorf("standard input, line %d: %w", v.Lines+1, err)
		}
		if !end || len(line) > 0 {
			v.Lines++
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			job, class, err := a.jobOfLine(ctx, cfg, line, defaults, homes)
			if err != nil {
				v.fail(v.Lines, err, false)
			} else {
				batch, numbers = append(batch, job), append(numbers, v.Lines)
				v.jobs.add(job.Queue, class)
			}
		}
		if len(batch) < linesAtOnce && !end {
			continue
		}
		answers, err := jobs.EnqueueMany(ctx, batch)
		for i, answer := range answers {
			v.count(numbers[i], answer)
		}
		bar.at(v.Enqueued + v.Delayed)
		if err != nil && client.Unreachable(err) {
			return v, err
		}
		batch, numbers = batch[:0], numbers[:0]
	}
	return v, nil
}

// readLine returns a line of bounded length.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxInput:
			return nil, fmt.Errorf("it is longer than %s", view.Size(maxInput))
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// jobOfLine returns the job of a line, and its class. homes caches the queues of classes.
func (a *cli) jobOfLine(ctx context.Context, cfg *config.Resolved, line []byte, job client.EnqueueParams, homes map[string]string) (client.EnqueueParams, string, error) {
	var l jobLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return job, "", fmt.Errorf("%w: %s", err, wire.Printable(string(line), 80))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return job, "", fmt.Errorf("more than one JSON value: %s", wire.Printable(string(line), 80))
	}
	payload, err := wire.EncodePayload(l.Class, l.Args)
	if err != nil {
		return job, "", err
	}
	job.Payload = payload
	if l.Queue != "" {
		job.Queue = l.Queue
	}
	if job.Queue == "" {
		home, known := homes[l.Class]
		if !known {
			// The client reports a missing queue.
			if len(cfg.Stores) > 0 {
				home, _ = a.queueInStores(ctx, cfg, l.Class)
			} else {
				home, _ = a.queueOf(ctx, cfg.Config, l.Class)
			}
			homes[l.Class] = home
		}
		job.Queue = home
	}
	if l.In != "" || l.At != "" {
		w := whenFlags{in: l.In, at: l.At}
		job.In, job.At, err = w.parse(time.Now())
	}
	return job, l.Class, err
}

func (v *linesView) count(line int, a client.EnqueueResult) {
	switch {
	case a.Err != nil:
		v.fail(line, a.Err, !client.NotEnqueued(a.Err))
	case a.Status == client.StatusDelayed:
		v.Delayed++
	case a.Status == client.StatusDuplicate:
		v.Duplicates++
	case a.Status == client.StatusLocked:
		v.Locked++
	default:
		v.Enqueued++
	}
}

func (v *linesView) fail(line int, err error, unknown bool) {
	v.Failed++
	if len(v.Failures) < linesAtOnce {
		v.Failures = append(v.Failures, lineFailure{Line: line, Error: err.Error(), Unknown: unknown})
	}
}

func (out *output) tellLines(v linesView) error {
	for i, f := range v.Failures {
		if i == maxTold {
			out.note("… and %d more; see -o json", v.Failed-i)
			break
		}
		unknown := ""
		if f.Unknown {
			unknown = " (it may have been enqueued anyway)"
		}
		out.note("line %d: %s%s", f.Line, wire.Printable(f.Error, 300), unknown)
	}
	var text strings.Builder
	text.WriteString("enqueued " + plural(v.Enqueued, "job"))
	for _, more := range []struct {
		n    int
		what string
	}{{v.Delayed, "delayed"}, {v.Duplicates, "duplicates, not enqueued"}, {v.Locked, "not enqueued: one with the same lock runs"}, {v.Failed, "failed"}} {
		if more.n > 0 {
			fmt.Fprintf(&text, ", %d %s", more.n, more.what)
		}
	}
	return out.result(v, "", text.String()+"\n")
}
