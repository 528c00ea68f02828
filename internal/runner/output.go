package runner

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// drainFor is how long to wait for output when a runner's processes are gone: then only a
// foreign process that was given a pipe can hold it open. The pipe's contents are still read.
const drainFor = time.Second

// output reads a process's stdout and stderr, by a goroutine each.
type output struct {
	log   *zap.Logger
	about func() []zap.Field
	// quiet: log lines only at level debug.
	quiet   atomic.Bool
	errs    lastWords
	readers []*os.File
	done    sync.WaitGroup
}

// connect returns the process's ends of the pipes, which the caller closes.
func (o *output) connect() (stdout, stderr *os.File, err error) {
	if stdout, err = o.pipe(func(r *os.File) { o.lines("stdout", &program.Lasting{File: r}) }); err != nil {
		return nil, nil, err
	}
	if stderr, err = o.pipe(func(r *os.File) { o.lines("stderr", o.errs.of(r)) }); err != nil {
		_ = stdout.Close()
		return nil, nil, err
	}
	return stdout, stderr, nil
}

func (o *output) pipe(read func(*os.File)) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.readers = append(o.readers, r)
	o.done.Go(func() { read(r) })
	return w, nil
}

func (o *output) lines(stream string, r io.Reader) {
	program.EachLine(r, func(line []byte, left int) {
		fields := append(o.about(), zap.String("stream", stream), zap.String("line", wire.Printable(string(line), program.MaxLine)))
		if left > 0 {
			fields = append(fields, zap.Int("bytes_left_out", left))
		}
		level := zap.InfoLevel
		if o.quiet.Load() {
			level = zap.DebugLevel
		}
		o.log.Log(level, "runner output", fields...)
	})
}

// drain waits until all is read, but not for foreign processes, and closes the pipes.
func (o *output) drain() {
	for _, r := range o.readers {
		// Fails only on files without deadlines; pipes have them.
		_ = r.SetReadDeadline(time.Now().Add(drainFor))
	}
	o.done.Wait()
	for _, r := range o.readers {
		_ = r.Close()
	}
	o.readers = nil
}
