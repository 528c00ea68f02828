package runner

import (
	"io"
	"os"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/program"
)

// output reads a process's stdout and stderr.
type output struct {
	program.Output
	log   *zap.Logger
	about func() []zap.Field
	// quiet: log lines only at level debug.
	quiet atomic.Bool
	errs  lastWords
}

// connect returns the process's ends of the pipes, which the caller closes.
func (o *output) connect() (stdout, stderr *os.File, err error) {
	if stdout, err = o.Pipe(func(r *program.Lasting) { o.lines("stdout", r) }); err != nil {
		return nil, nil, err
	}
	if stderr, err = o.Pipe(func(r *program.Lasting) { o.lines("stderr", o.errs.of(r)) }); err != nil {
		_ = stdout.Close()
		return nil, nil, err
	}
	return stdout, stderr, nil
}

func (o *output) lines(stream string, r io.Reader) {
	program.LogLines(stream, r, func(fields ...zap.Field) {
		level := zap.InfoLevel
		if o.quiet.Load() {
			level = zap.DebugLevel
		}
		o.log.Log(level, "runner output", append(o.about(), fields...)...)
	})
}
