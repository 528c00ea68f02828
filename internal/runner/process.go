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
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

type state byte

const (
	booting state = iota
	ready
	leaving // it takes no new job
	gone
)

// process is one process of a runner. Its goroutine, live, starts and ends it.
type process struct {
	pool *Pool
	log  *zap.Logger

	// Set at the start, constant once it is ready.
	tag    string
	mark   mark.Mark
	conn   *conn
	handle handle
	out    output
	status *os.File // of a forked process: the template's report of its end
	forked bool
	born   time.Time
	hello  hello
	slots  int

	pid atomic.Int64
	// exited is closed when the process has ended, ended when its descendants are gone, too.
	// Then ending says how.
	exited chan struct{}
	ended  chan struct{}
	ending *EndError

	// broken is what ended the reader; set before ended is closed.
	broken error

	mu sync.Mutex
	// how is why it was killed; the first reason counts.
	how    string
	number int64           // the last job's
	calls  map[int64]*call // the jobs in it
	// current is the job in a process with one slot.
	current atomic.Pointer[resqued.Job]
	line    []byte // buffer for a job's line, under conn.writing
	puzzled bool   // it has sent an unknown kind of line; owned by the reader

	// Of the pool, under its lock.
	state    state
	since    time.Time
	busy     int
	jobs     int // jobs that it was given
	replaced bool
	replaces *process
	dismiss  bool // to leave when its successor is ready
	told     bool // it was told to leave
	// leaves ends then: its jobs should make room.
	leaves      context.Context //nolint:containedctx // it is told to jobs
	tellLeaving context.CancelFunc
	// paused: it was told of a pause that has not ended for it. informing: a writer is active.
	paused, informing bool
	// tokens name the runs of its jobs.
	holding sync.Mutex
	tokens  []string
	useless bool // it has closed its socket or broken the protocol
	rss     int64
	late    *time.Timer // kills it if it does not leave
}

type handle interface {
	// kill sends SIGKILL to the process, never to a later one with its pid.
	kill()
	await()
	// reap releases the handle once all descendants are gone, and describes the end.
	reap() (how string, err error)
}

// live starts the process, and returns when it and its descendants are gone.
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
		reader.Go(q.read)
		q.handle.await()
		close(q.exited)
		// Other holders of the socket must not delay the end.
		_ = q.conn.file.SetReadDeadline(time.Now().Add(program.DrainFor))
		reader.Wait()
	}
	if err != nil {
		close(q.exited)
	}
	q.end(err)
	p.lost(q)
	close(q.ended)
}

func (q *process) boot() error {
	p := q.pool
	own := q.pool.o.Proc
	if own == "" {
		own = fmt.Sprint(os.Getpid())
	}
	n, m := mark.Worker(own).Take()
	q.tag, q.mark = fmt.Sprintf("%s/%d", own, n), m
	q.out.log, q.out.about = p.log, q.about
	q.out.quiet.Store(p.failing()) // its output is in the error, which is logged from time to time
	ours, theirs, err := proc.Socketpair(unix.SOCK_STREAM, "runner")
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
		// The template may need as long to boot before it takes the request.
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

// errNoHello is less specific than the process's exit status, where that is known.
var errNoHello = errors.New("ended, or closed its socket, before its hello")

var errClosed = errors.New("the worker process is leaving")

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

func (q *process) odd(line []byte, err error) error {
	return fmt.Errorf("broke the protocol: the line %q %w", wire.Printable(string(line[:min(len(line), 400)]), 200), err)
}

// end ends the process's remains. err is why it was unusable, if it was.
func (q *process) end(err error) {
	how := ""
	if q.handle != nil {
		if errors.Is(err, errNoHello) {
			q.awaitFor(exitFor) // wait for its own last words and exit code
		}
		q.kill("")
		q.handle.await()
		q.sweep()
		how, _ = q.handle.reap()
	}
	if q.status != nil {
		how = q.reported()
	}
	q.out.Drain()
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

// awaitFor waits for the end of the process, at most most.
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

// kill ends the process; how says why, after its pid in a text. Only the first reason counts.
func (q *process) kill(how string) {
	q.mu.Lock()
	if q.how == "" {
		q.how = how
	}
	q.mu.Unlock()
	q.handle.kill()
}

func (q *process) breaks(line []byte, err error) {
	odd := q.odd(line, err)
	q.log.Error("a runner broke the protocol; killing it", zap.Int64("runner_pid", q.pid.Load()), zap.Error(odd))
	q.kill("was killed, because it " + odd.Error())
}

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
