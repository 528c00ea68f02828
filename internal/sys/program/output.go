package program

import (
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/wire"
)

// DrainFor is how long to wait for output when a program's processes are gone: then only a
// foreign process that was given a pipe can hold it open. The pipe's contents are still read.
const DrainFor = time.Second

// Output reads the pipes of a program, by a goroutine each.
type Output struct {
	readers []*os.File
	reading sync.WaitGroup
}

// Pipe returns the program's end of a pipe, which the caller closes, and calls read with the
// other one.
func (o *Output) Pipe(read func(r *Lasting)) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.readers = append(o.readers, r)
	o.reading.Go(func() { read(&Lasting{File: r}) })
	return w, nil
}

// Drain waits until all is read, but not for foreign processes, and closes the pipes.
func (o *Output) Drain() {
	for _, r := range o.readers {
		// Fails only on files without deadlines; pipes have them.
		_ = r.SetReadDeadline(time.Now().Add(DrainFor))
	}
	o.reading.Wait()
	for _, r := range o.readers {
		_ = r.Close()
	}
	o.readers = nil
}

// LogLines calls log with the fields of each line of a stream.
func LogLines(stream string, r io.Reader, log func(fields ...zap.Field)) {
	EachLine(r, func(line []byte, left int) {
		fields := []zap.Field{zap.String("stream", stream), zap.String("line", wire.Printable(string(line), MaxLine))}
		if left > 0 {
			fields = append(fields, zap.Int("bytes_left_out", left))
		}
		log(fields...)
	})
}
