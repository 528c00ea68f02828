package runner

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/launch"
	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procout"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// drainFor is how long output is waited for when nothing of a runner is left.
	drainFor = time.Second
	// maxTold bounds what of stderr stands in an error, in bytes.
	maxTold = 2 << 10
)

// process is a runner process: it has a socket, and performs as many jobs at a time as it has slots.
type process struct {
	pool  *Pool
	pid   int
	born  time.Time
	mark  mark.Mark
	hello *greeting
	log   *zap.Logger

	conn   *net.UnixConn
	in     *bufio.Reader
	handle *os.Process     // of a forked one
	leader *launch.Process // of one that was started
	exited chan struct{}   // closed when leader has ended
	output output

	writing sync.Mutex

	mu      sync.Mutex
	calls   map[int64]*call
	numbers int64
	begun   int
	spent   bool // the next one is to be started
	// retired: it gets no new job. broken: why it has to go, or has gone.
	retired bool
	broken  error
	gone    chan struct{} // closed when nothing of it is left

	// now is what it performs, for its lines in the log; of a process with one slot.
	now atomic.Pointer[call]
	rss atomic.Int64
}

// output reads what a runner writes to its standard output and standard error.
type output struct {
	readers []*os.File
	tail    tail
	wg      sync.WaitGroup
}

// tail is one that several goroutines use.
type tail struct {
	mu sync.Mutex
	procout.Tail
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Tail.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Text()
}

// open returns the ends of two pipes that are the runner's.
func (o *output) open(p *process) (stdout, stderr *os.File, err error) {
	pipe := func(stream string) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		o.readers = append(o.readers, r)
		var from io.Reader = r
		if stream == "stderr" {
			from = io.TeeReader(r, &o.tail)
		}
		o.wg.Go(func() { procout.EachLine(from, func(line []byte, left int) { p.said(stream, line, left) }) })
		return w, nil
	}
	if stdout, err = pipe("stdout"); err != nil {
		return nil, nil, err
	}
	if stderr, err = pipe("stderr"); err != nil {
		_ = stdout.Close()
		o.close()
		return nil, nil, err
	}
	return stdout, stderr, nil
}

// close waits for what was written, but not for strangers who hold the pipes open.
func (o *output) close() {
	for _, r := range o.readers {
		_ = r.SetReadDeadline(time.Now().Add(drainFor))
	}
	o.wg.Wait()
	for _, r := range o.readers {
		_ = r.Close()
	}
	o.readers = nil
}

// said logs a line of the runner's output, with the job that it performs if it has but one.
func (p *process) said(stream string, line []byte, left int) {
	fields := []zap.Field{zap.String("stream", stream), zap.String("line", wire.Printable(string(line), procout.MaxLine))}
	if left > 0 {
		fields = append(fields, zap.Int("bytes_left_out", left))
	}
	if c := p.now.Load(); c != nil {
		fields = append(fields, c.fields()...)
	}
	p.log.Info("runner output", fields...)
}

// slots returns how many jobs the process performs at a time.
func (p *process) slots() int { return max(1, min(p.hello.Concurrency, p.pool.o.Concurrency)) }

// errSpent: the process takes no new job.
var errSpent = errors.New("the runner takes no new job")

// begin gives a job a number; last reports that it is the last one.
func (p *process) begin(c *call) (last bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired || p.broken != nil {
		return false, errSpent
	}
	p.numbers++
	p.begun++
	c.number = p.numbers
	p.calls[c.number] = c
	if p.slots() == 1 {
		p.now.Store(c)
	}
	return p.pool.o.Jobs > 0 && p.begun >= p.pool.o.Jobs, nil
}

// end takes a job that has ended from the process. again reports whether its slot may be used again;
// idle, whether it was the last job of a process that is to leave.
func (p *process) end(c *call) (again, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c.number)
	p.now.CompareAndSwap(c, nil)
	return !p.retired && p.broken == nil, p.retired && len(p.calls) == 0
}

// retire has the process take no new job. It reports whether nothing is under way.
func (p *process) retire() (idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	return len(p.calls) == 0
}

// write writes one line or several.
func (p *process) write(lines []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.conn.Write(lines)
	return err
}

// tell writes a line that is about a job. That a runner is gone is noticed by its reader.
func (p *process) tell(format string, args ...any) {
	_ = p.write(fmt.Appendf(nil, format+"\n", args...))
}

// read takes the lines of the runner until its socket ends, or it says what no runner may say.
func (p *process) read() {
	err := p.lines()
	p.fail(err)
}

func (p *process) lines() error {
	for {
		line, err := p.line()
		if err != nil {
			return err
		}
		m, err := parse(line)
		if err == nil {
			err = p.take(m)
		}
		if err != nil {
			return &brokenError{line: string(line[:min(len(line), 300)]), err: err}
		}
	}
}

// errEnded: the runner has closed its socket.
var errEnded = errors.New("ended")

// line returns the next line, which is valid until the next call.
func (p *process) line() ([]byte, error) {
	line, err := p.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxAnswer {
			line, err = p.in.ReadSlice('\n')
			long = append(long, line...)
		}
		if len(long) > maxAnswer {
			return nil, &brokenError{line: string(long[:300]), err: fmt.Errorf("the line is longer than %d bytes", maxAnswer)}
		}
		line = long
	}
	if err != nil {
		return nil, errEnded
	}
	return line[:len(line)-1], nil
}

// take hands a line to the job that it is about.
func (p *process) take(m message) error {
	switch m.kind {
	case unknown:
		p.log.Warn("a runner has said something unknown, which is ignored")
		return nil
	case hello:
		return errors.New("a runner greets once")
	case complaint:
		p.log.Warn("a runner does not understand", zap.String("says", wire.Printable(m.text, 1000)))
		return nil
	case logLine:
		p.logged(m)
		return nil
	}
	p.mu.Lock()
	c := p.calls[m.job]
	twice := c != nil && c.ended
	if c != nil && m.kind.ends() {
		c.ended = true
	}
	p.mu.Unlock()
	switch {
	case c == nil:
		return fmt.Errorf("it does not have a job with the number %d", m.job)
	case twice:
		return fmt.Errorf("its job %d has ended before", m.job)
	}
	if m.line != nil {
		m.line = bytes.Clone(m.line)
	}
	select {
	case c.messages <- m:
	case <-p.gone:
	}
	return nil
}

// logged writes a line that a job or the runner itself wants in the log.
func (p *process) logged(m message) {
	fields := []zap.Field{}
	p.mu.Lock()
	if c := p.calls[m.job]; c != nil {
		fields = c.fields()
	}
	p.mu.Unlock()
	fields = append(fields, zap.String("line", wire.Printable(m.text, procout.MaxLine)))
	switch strings.ToLower(m.level) {
	case "debug":
		p.log.Debug("runner log", fields...)
	case "warn", "warning":
		p.log.Warn("runner log", fields...)
	case "error", "fatal":
		p.log.Error("runner log", fields...)
	default:
		p.log.Info("runner log", fields...)
	}
}

// brokenError says that a runner has broken the protocol.
type brokenError struct {
	line string
	err  error
}

// Error quotes the line.
func (e *brokenError) Error() string {
	return fmt.Sprintf("broke the protocol by the line %q: %v", wire.Printable(e.line, 200), e.err)
}

// fail ends the process for a reason, and then the jobs that it has. It returns when nothing of it
// is left. Only the first reason counts.
func (p *process) fail(why error) {
	p.mu.Lock()
	if p.broken != nil {
		p.mu.Unlock()
		<-p.gone
		return
	}
	p.broken = why
	p.mu.Unlock()
	p.pool.lost(p, why)
	p.kill()
	p.sweep()
	status := ""
	if p.leader != nil {
		<-p.exited
		ended, err := p.leader.Wait()
		p.pool.disown(p.pid)
		switch {
		case err != nil:
			status = err.Error()
		case ended.Signaled():
			status = "signal " + strconv.Itoa(int(ended.Signal()))
		default:
			status = "exit code " + strconv.Itoa(ended.ExitStatus())
		}
	}
	_ = p.conn.Close()
	p.output.close()
	if p.handle != nil {
		_ = p.handle.Release()
	}
	p.mu.Lock()
	jobs := 0
	for _, c := range p.calls {
		if !c.ended {
			jobs++
		}
	}
	p.mu.Unlock()
	p.pool.buried(p, why, status, jobs)
	close(p.gone)
}

// death says how the process ended, for the jobs that it had.
func (p *process) death(why error) string {
	text := fmt.Sprintf("runner %s (pid %d) %s while it performed this job", p.pool.o.Name, p.pid, why)
	if end := p.output.tail.text(); end != "" {
		if over := len(end) - maxTold; over > 0 {
			end = "…" + strings.ToValidUTF8(end[over:], "")
		}
		text += "; the end of its stderr:\n" + end
	}
	return text
}

// kill sends SIGKILL.
func (p *process) kill() {
	switch {
	case p.leader != nil:
		p.leader.Signal(killSignal)
	case p.handle != nil:
		_ = p.handle.Kill()
	}
}

// leave has a process that has no job, and gets none, end in good order.
func (p *process) leave(grace time.Duration) {
	p.tell(`{"leave":true}`)
	late := time.AfterFunc(grace, func() {
		p.log.Warn("a runner does not leave; it is killed", zap.Duration("after", grace))
		p.kill()
	})
	<-p.gone
	late.Stop()
}
