package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/wire"
)

// state is where a process is in its life.
type state byte

// The states, in their order.
const (
	booting state = iota
	ready
	leaving // it takes no new job
	gone
)

// process is one process of a runner. Its goroutine, live, starts it and sees it to its end.
type process struct {
	pool *Pool
	log  *zap.Logger

	// Of its start, not changed once it is ready.
	tag    string
	mark   mark.Mark
	conn   *conn
	handle handle
	out    output
	status *os.File // of one that the template forks: what it says of its end
	forked bool
	born   time.Time
	hello  hello
	slots  int

	pid atomic.Int64
	// exited is closed when it has ended, and ended when all that it has started is gone, too.
	// ending says how, and may be read then.
	exited chan struct{}
	ended  chan struct{}
	ending *EndError

	// number is that of its last job; of whoever reads, or under mu.
	number int64

	mu sync.Mutex
	// how is why it was killed, the first reason.
	how   string
	calls map[int64]*call // of the jobs in it, where it has several slots
	// current is the job of a process with one slot.
	current atomic.Pointer[resqued.Job]
	line    []byte // to write a job, under the lock of the writers
	puzzled bool   // it has said something that is not known; of whoever reads

	// Of the pool, under its lock.
	state    state
	since    time.Time
	busy     int
	jobs     int // that it was given
	replaced bool
	replaces *process
	dismiss  bool // it is to leave when its successor is ready
	told     bool // it was told to leave
	// leaves ends then: its jobs should make room.
	leaves      context.Context //nolint:containedctx // it is told to jobs
	tellLeaving context.CancelFunc
	// paused: it was told of a pause, and not of its end; informing: it is just being told.
	paused, informing bool
	// tokens name the runs of the jobs that it performs.
	holding sync.Mutex
	tokens  []string
	useless bool // it has closed its socket, or broken the protocol
	rss     int64
	late    *time.Timer // kills it when it does not leave
}

// handle is the way to a process: one that this process has started, or one that the template
// has forked.
type handle interface {
	// kill sends SIGKILL to the process, if it still is the same.
	kill()
	// await blocks until it has ended.
	await()
	// reap gives the handle back, when nothing is left of the process, and says how it ended.
	reap() (how string, err error)
}

// live starts the process, and returns when it is gone with all that it has started.
func (q *process) live(delay time.Duration) {
	p := q.pool
	if delay > 0 {
		pause := time.NewTimer(delay)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-p.closing:
			close(q.exited)
			p.lost(q)
			close(q.ended)
			return
		}
	}
	began := time.Now()
	err := q.boot()
	if err == nil {
		p.ready(q, time.Since(began))
		var reader sync.WaitGroup
		if q.slots > 1 {
			reader.Go(q.read)
		}
		q.handle.await()
		close(q.exited)
		// What others have of the socket does not keep anybody waiting.
		_ = q.conn.file.SetReadDeadline(time.Now().Add(drainFor))
		reader.Wait()
	}
	if err != nil {
		close(q.exited)
	}
	q.end(err)
	p.lost(q)
	close(q.ended)
}

// boot starts the process and waits for its hello.
func (q *process) boot() error {
	p := q.pool
	own := q.pool.o.Proc
	if own == "" {
		own = fmt.Sprint(os.Getpid())
	}
	n, m := mark.Worker(own).Take()
	q.tag, q.mark = fmt.Sprintf("%s/%d", own, n), m
	q.out.log, q.out.about = p.log, q.about
	q.out.quiet.Store(p.failing()) // its words are in the error, which is logged now and then
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	if q.conn, err = newConn(ours); err != nil {
		_ = theirs.Close()
		return err
	}
	stdout, stderr, err := q.out.connect()
	if err != nil {
		_ = theirs.Close()
		return err
	}
	files := []*os.File{theirs, stdout, stderr}
	most := p.o.BootTimeout
	limit := time.Now().Add(most)
	q.born = time.Now()
	if q.forked = p.forks.Load(); q.forked {
		// The request may wait for the template, which may take as long to boot.
		limit = limit.Add(most)
		var status *os.File
		if q.status, status, err = os.Pipe(); err == nil {
			files = append(files, status)
			err = q.ask(files, limit)
		}
	} else {
		err = q.start(files)
	}
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return err
	}
	_ = q.conn.file.SetReadDeadline(limit)
	stop := context.AfterFunc(p.ending, func() { _ = q.conn.file.SetReadDeadline(time.Now()) })
	defer stop()
	if q.forked {
		err = q.meet()
	} else {
		err = q.greet()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && p.ending.Err() != nil:
		return errClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("has said nothing for %s (boot_timeout)", limit.Sub(q.born).Round(time.Millisecond))
	case err != nil:
		return err
	}
	return q.conn.file.SetReadDeadline(time.Time{})
}

// errNoHello says less than how the process has ended, where that can be known.
var errNoHello = errors.New("ended, or closed its socket, before its hello")

var errClosed = errors.New("the worker process is leaving")

// greet reads the hello.
func (q *process) greet() error {
	line, err := q.conn.line()
	switch {
	case errors.Is(err, io.EOF):
		return errNoHello
	case errors.Is(err, errTooLong):
		return q.odd(line, err)
	case err != nil:
		return err
	}
	a, err := parse(line)
	if err == nil && a.kind != kindHello {
		err = errors.New("is not the hello that must come first")
	}
	if err != nil {
		return q.odd(line, err)
	}
	h := a.hello
	switch {
	case h.Protocol != 1:
		return fmt.Errorf("speaks version %d of the protocol, and resqued version 1", h.Protocol)
	case h.Template:
		return errors.New("says that it is a template, and was not asked to be one")
	}
	q.hello, q.slots = h, min(max(h.Concurrency, 1), q.pool.o.Concurrency)
	return nil
}

// odd is the error of a line that breaks the protocol.
func (q *process) odd(line []byte, err error) error {
	return fmt.Errorf("broke the protocol: the line %q %w", wire.Printable(string(line[:min(len(line), 400)]), 200), err)
}

// end ends what is left of the process. err is why it could not be used, if it could not.
func (q *process) end(err error) {
	how := ""
	if q.handle != nil {
		if errors.Is(err, errNoHello) {
			q.awaitFor(exitFor) // it has words of its own, and an exit code
		}
		q.kill("")
		q.handle.await()
		q.sweep()
		how, _ = q.handle.reap()
	}
	if q.status != nil {
		how = q.reported()
	}
	q.out.drain()
	if q.conn != nil {
		q.conn.close()
	}
	if q.mark != 0 {
		q.mark.Free()
	}
	q.mu.Lock()
	if q.how != "" {
		how = q.how
	}
	q.mu.Unlock()
	if err != nil && (how == "" || !errors.Is(err, errNoHello)) {
		how = err.Error()
	}
	if how == "" {
		how = "ended"
	}
	q.ending = &EndError{Runner: q.pool.o.Name, PID: int(q.pid.Load()), How: how, Stderr: q.out.errs.text()}
}

// awaitFor waits for the end of the process, but not for long.
func (q *process) awaitFor(most time.Duration) {
	ended := make(chan struct{})
	q.pool.lives.Go(func() {
		q.handle.await()
		close(ended)
	})
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}

// kill ends the process; how is why, in words that follow its number. Only the first one counts.
func (q *process) kill(how string) {
	q.mu.Lock()
	if q.how == "" {
		q.how = how
	}
	q.mu.Unlock()
	q.handle.kill()
}

// breaks kills a process that breaks the protocol.
func (q *process) breaks(line []byte, err error) {
	odd := q.odd(line, err)
	q.log.Error("a runner broke the protocol; killing it", zap.Int64("runner_pid", q.pid.Load()), zap.Error(odd))
	q.kill("was killed, because it " + odd.Error())
}

// about returns the fields of a line that the process has written.
func (q *process) about() []zap.Field {
	fields := []zap.Field{zap.Int64("runner_pid", q.pid.Load())}
	if job := q.current.Load(); job != nil {
		fields = append(fields, aboutJob(job)...)
	}
	return fields
}

func aboutJob(job *resqued.Job) []zap.Field {
	return []zap.Field{zap.String("class", wire.Printable(job.Class, shownName)), zap.String("job", wire.Printable(job.ID, shownName))}
}
