package runner

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/program"
)

var (
	errSecondHello = errors.New("is a second hello")
	errStrange     = errors.New("names a job that it does not have")
	errHalf        = errors.New("has no end")
)

// carryOut hands out the job and handles what the process says about it.
func (c *call) carryOut() (begun bool, err error) {
	q, p := c.q, c.q.pool
	if q.slots == 1 {
		if !q.restOfLine() {
			p.give(q)
			return false, nil
		}
		q.current.Store(c.job)
		defer q.current.Store(nil)
	}
	c.lines = make(chan answer, 8)
	defer c.disarm()
	q.mu.Lock()
	q.number++
	c.number = q.number
	q.calls[c.number] = c
	q.mu.Unlock()
	over, err := c.hand()
	if err != nil { // the line is incomplete, so the job has not begun
		cancelled := c.settle(over)
		q.forget(c.number)
		q.hangUp(err)
		p.give(q)
		if cancelled {
			<-q.ended
			return true, errNotStarted
		}
		return false, nil
	}
	end := c.watch()
	a, ok := c.listen()
	end()
	stopped := c.settle(over) || c.outOfTime
	if q.slots > 1 {
		c.disarm() // for its other jobs
	}
	if stopped { // the state left behind by interrupted code is unknown
		p.leave(q)
	}
	p.put(q, ok)
	switch {
	case !ok && q.slots == 1 && errors.Is(q.broken, unix.ECONNRESET) && q.conn.last():
		// It has not read something written last: the job, or part of it, if nothing followed.
		return false, nil
	case !ok:
		return true, c.lost()
	case stopped && q.slots == 1, c.outOfTime:
		<-q.ended
	}
	return true, c.judge(&a)
}

// disarm keeps the process from being killed for this job.
func (c *call) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

// restOfLine waits for the rest of a line that a process without a job has begun, and reports
// whether the process is still usable.
func (q *process) restOfLine() bool {
	if q.conn.half.Load() == 0 {
		return true
	}
	for late := time.After(q.pool.o.lineFor); q.conn.half.Load() != 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-q.exited:
			return false
		case <-late:
			q.breaks(nil, errHalf)
			return false
		}
	}
	return true
}

// listen handles lines about the job until it has ended; false: the process is gone.
func (c *call) listen() (answer, bool) {
	for {
		var a answer
		select {
		case a = <-c.lines:
		case <-c.q.ended:
			select {
			case a = <-c.lines: // its last words
			default:
				return a, false
			}
		}
		if a.kind.ends() {
			return a, true
		}
		c.take(&a)
	}
}

// read reads the lines of a process until its end.
func (q *process) read() {
	var until time.Time // set once the process has ended: until when its last words are delivered
	for {
		line, err := q.conn.line()
		if err != nil {
			q.broken = err
			if errors.Is(err, errTooLong) {
				q.breaks(line, err)
			}
			q.hangUp(err)
			return
		}
		a, err := parse(line)
		var c *call
		switch {
		case err != nil:
		case a.kind == kindHello:
			err = errSecondHello
		case a.job == 0:
			q.aside(&a)
			continue
		default:
			c, err = q.callOf(&a)
		}
		if err != nil {
			q.breaks(line, err)
			return
		}
		if c == nil {
			continue
		}
		select {
		case c.lines <- a:
		case <-q.exited:
			// Its last words count, but a job that does not take them must not block others.
			if until.IsZero() {
				until = time.Now().Add(program.DrainFor)
			}
			select {
			case c.lines <- a:
			case <-time.After(time.Until(until)):
			}
		}
	}
}

// callOf returns the job that a line is about, and removes it if the line ends it. Lines about
// ended jobs are ignored; only a second end is an error.
func (q *process) callOf(a *answer) (*call, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.calls[a.job]
	switch {
	case c == nil && (a.kind.ends() || a.job > q.number):
		return nil, errStrange
	case c != nil && a.kind.ends():
		delete(q.calls, a.job)
	}
	return c, nil
}

func (q *process) forget(number int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.calls, number)
}
