package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// output reads a command's output, from connect until drain or abandon.
type output struct {
	program.Output
	log     *zap.Logger
	refresh *program.Refresher
	slice   *slice
	tail    program.Tail
	theirs  []*os.File
	// junk: a line on fd 3 was not a message. Only its reader uses this.
	junk bool
	hit  atomic.Pointer[limitHit] // the last of the command
}

// connect opens the pipes and returns the command's ends, for its descriptors from 1 on.
func (o *output) connect() ([]*os.File, error) {
	stdout, err := o.pipe(func(r io.Reader) { program.LogLines("stdout", r, o.said) })
	if err != nil {
		return nil, err
	}
	stderr, err := o.pipe(func(r io.Reader) { program.LogLines("stderr", io.TeeReader(r, &o.tail), o.said) })
	if err != nil {
		return nil, err
	}
	report, replies := func(r io.Reader) { program.EachLine(r, o.report) }, (*os.File)(nil)
	if s := o.slice; s != nil {
		if replies, err = s.replies.open(); err != nil {
			o.abandon()
			return nil, err
		}
		o.theirs = append(o.theirs, replies)
		report = func(r io.Reader) { eachReport(r, s.MaxLine, s.report) }
	}
	reports, err := o.pipe(report)
	if err != nil {
		return nil, err
	}
	files := []*os.File{stdout, stderr, reports} // 3 is outputFD
	if replies != nil {
		files = append(files, replies)
	}
	return files, nil
}

func (o *output) pipe(read func(io.Reader)) (*os.File, error) {
	w, err := o.Pipe(func(r *program.Lasting) { read(r) })
	if err != nil {
		o.abandon()
		return nil, err
	}
	o.theirs = append(o.theirs, w)
	return w, nil
}

func (o *output) started() {
	for _, f := range o.theirs {
		_ = f.Close()
	}
	o.theirs = nil
}

// abandon releases everything for a command that did not start.
func (o *output) abandon() {
	o.started()
	o.drain()
}

func (o *output) drain() {
	o.Drain()
	o.refresh.End()
	if o.slice != nil {
		o.slice.replies.close()
	}
}

// limitHit is a limit that a command wants closed when it exits with exitRequeue.
type limitHit struct {
	name  string
	after time.Duration
}

// maxHit bounds how long a command may close a limit.
const maxHit = 366 * 24 * time.Hour

func (o *output) said(fields ...zap.Field) { o.log.Info("command output", fields...) }

// report takes a line of fd 3: one JSON object.
func (o *output) report(line []byte, left int) {
	var m struct {
		Progress *struct {
			Done  json.Number `json:"done"`
			Total json.Number `json:"total"`
		} `json:"progress"`
		RefreshLock bool `json:"refresh_lock"`
		LimitHit    *struct {
			Limit string  `json:"limit"`
			After float64 `json:"after"`
		} `json:"limit_hit"`
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	err := json.Unmarshal(line, &m)
	switch {
	case left > 0:
		err = errors.New("the line is too long")
	case err == nil && m.Progress != nil:
		o.log.Debug("job progress", zap.Stringer("done", m.Progress.Done), zap.Stringer("total", m.Progress.Total))
	case err == nil && m.RefreshLock:
		o.refresh.Ask()
	case err == nil && m.LimitHit != nil:
		o.hit.Store(&limitHit{name: m.LimitHit.Limit, after: time.Duration(min(max(m.LimitHit.After, 0), maxHit.Seconds()) * float64(time.Second))})
	}
	if err != nil && !o.junk {
		o.junk = true
		o.log.Warn("a command wrote something on fd 3 that is not a message; it is ignored, and what follows of its kind, too",
			zap.String("line", wire.Printable(string(line), 200)), zap.Error(err))
	}
}
