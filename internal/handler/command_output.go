package handler

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxLine bounds a line of output, in bytes; the rest of it is left out.
	maxLine = 8 << 10
	// maxTail bounds what of stderr becomes the text of an error, in bytes.
	maxTail = 16 << 10
	// drainFor is how long output is waited for when every process of a command
	// is gone: only a stranger that was handed a pipe can hold it open then.
	drainFor = time.Second
)

// output reads what a command writes. Its pipes are read by one goroutine each,
// from connect until drain or abandon.
type output struct {
	log     *zap.Logger
	refresh *refresher
	// slice, if not nil, takes what the command reports.
	slice   *slice
	tail    tail
	readers []*os.File
	// theirs are the ends that are the command's.
	theirs []*os.File
	wg     sync.WaitGroup
	// A line on fd 3 was no message. Read by its goroutine alone.
	junk bool
}

// connect opens the pipes and returns the ends that are the command's, which has them as
// its descriptors from 1 on.
func (o *output) connect() ([]*os.File, error) {
	stdout, err := o.pipe(func(r *os.File) { o.logLines("stdout", r) })
	if err != nil {
		return nil, err
	}
	stderr, err := o.pipe(func(r *os.File) { o.logLines("stderr", io.TeeReader(r, &o.tail)) })
	if err != nil {
		return nil, err
	}
	report, replies := func(r *os.File) { eachLine(r, o.report) }, (*os.File)(nil)
	if s := o.slice; s != nil {
		if replies, err = s.replies.open(); err != nil {
			o.abandon()
			return nil, err
		}
		o.theirs = append(o.theirs, replies)
		report = func(r *os.File) { eachReport(&lasting{pipe: r}, s.MaxLine, s.report) }
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

func (o *output) pipe(read func(*os.File)) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		o.abandon()
		return nil, err
	}
	o.readers, o.theirs = append(o.readers, r), append(o.theirs, w)
	o.wg.Go(func() { read(r) })
	return w, nil
}

// started closes the ends of the pipes that the command has now.
func (o *output) started() {
	for _, f := range o.theirs {
		_ = f.Close()
	}
	o.theirs = nil
}

// abandon ends everything for a command that did not start.
func (o *output) abandon() {
	o.started()
	o.drain()
}

// drain waits until all output is read and closes the pipes.
func (o *output) drain() {
	for _, r := range o.readers {
		// It can only fail on a file that cannot have a deadline; a pipe can.
		_ = r.SetReadDeadline(time.Now().Add(drainFor))
	}
	o.wg.Wait()
	for _, r := range o.readers {
		_ = r.Close()
	}
	o.readers = nil
	o.refresh.end()
	if o.slice != nil {
		o.slice.replies.close()
	}
}

func (o *output) logLines(stream string, r io.Reader) {
	eachLine(r, func(line []byte, left int) {
		fields := []zap.Field{zap.String("stream", stream), zap.String("line", wire.Printable(string(line), maxLine))}
		if left > 0 {
			fields = append(fields, zap.Int("bytes_left_out", left))
		}
		o.log.Info("command output", fields...)
	})
}

// report takes a line of fd 3: one JSON object.
func (o *output) report(line []byte, left int) {
	var m struct {
		Progress *struct {
			Done  json.Number `json:"done"`
			Total json.Number `json:"total"`
		} `json:"progress"`
		RefreshLock bool `json:"refresh_lock"`
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
		o.refresh.ask()
	}
	if err != nil && !o.junk {
		o.junk = true
		o.log.Warn("a command wrote something on fd 3 that is no message; it is ignored, and what follows of its kind, too",
			zap.String("line", wire.Printable(string(line), 200)), zap.Error(err))
	}
}

// eachLine calls fn for each line of r, without its line break, until r ends.
// left counts the bytes of the line beyond maxLine.
func eachLine(r io.Reader, fn func(line []byte, left int)) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := b.ReadSlice('\n')
		left := 0
		if errors.Is(err, bufio.ErrBufferFull) {
			// The buffer is used again below.
			line = bytes.Clone(line)
			left, err = skipLine(b)
		}
		if len(line) > 0 {
			fn(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), left)
		}
		if err != nil {
			// The end, or the deadline of drain: there is no more to be had.
			return
		}
	}
}

// skipLine counts the bytes up to the end of the line.
func skipLine(b *bufio.Reader) (skipped int, err error) {
	for {
		rest, err := b.ReadSlice('\n')
		skipped += len(bytes.TrimSuffix(rest, []byte("\n")))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return skipped, err
		}
	}
}

// tail keeps the last maxTail bytes that are written to it.
type tail struct {
	buf []byte
	cut bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 4*maxTail {
		t.trim()
	}
	return len(p), nil
}

func (t *tail) trim() {
	if extra := len(t.buf) - maxTail; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
		t.cut = true
	}
}

// text returns what is kept, printable but for its line breaks and tabs, and
// again not longer than maxTail.
func (t *tail) text() string {
	t.trim()
	raw := strings.ReplaceAll(string(t.buf), "\r\n", "\n")
	if t.cut {
		// Not from the middle of a line, if that is possible.
		if _, rest, ok := strings.Cut(raw, "\n"); ok && rest != "" {
			raw = rest
		}
	}
	var b strings.Builder
	for raw = strings.TrimRight(raw, " \t\r\n"); ; {
		i := strings.IndexAny(raw, "\n\t")
		if i < 0 {
			b.WriteString(wire.Printable(raw, 0))
			break
		}
		b.WriteString(wire.Printable(raw[:i], 0))
		b.WriteByte(raw[i])
		raw = raw[i+1:]
	}
	text := b.String()
	if !t.cut && len(text) <= maxTail {
		return text
	}
	if over := len(text) - (maxTail - len("…")); over > 0 {
		text = text[over:]
		for !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	return "…" + text
}
