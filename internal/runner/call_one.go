package runner

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func (c *call) one() (begun bool, err error) {
	q, p := c.q, c.q.pool
	if !q.strays() {
		p.give(q)
		return false, nil
	}
	q.number++
	c.number = q.number
	q.current.Store(c.job)
	over, err := c.hand()
	if err != nil { // the line is incomplete, so the job has not begun
		cancelled := c.settle(over)
		c.disarm()
		q.current.Store(nil)
		q.hangUp(err)
		p.give(q)
		if cancelled {
			<-q.ended
			return true, errNotStarted
		}
		return false, nil
	}
	end := c.watch()
	a, err := c.hear()
	end()
	cancelled := c.settle(over)
	q.current.Store(nil)
	switch {
	case err != nil:
		q.hangUp(err)
		p.give(q)
		<-q.ended
		c.disarm()
		// It has not read something written last: the job, or part of it, if nothing followed.
		if errors.Is(err, unix.ECONNRESET) && q.conn.last() {
			return false, nil
		}
		return true, c.lost()
	case cancelled, c.outOfTime:
		// The state left behind by interrupted code is unknown.
		p.leave(q)
		p.put(q, true)
		<-q.ended
		c.disarm()
	default:
		p.put(q, true)
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

// hear reads lines until one ends the job. After an error the process is useless.
func (c *call) hear() (answer, error) {
	q := c.q
	for {
		line, err := q.conn.line()
		if err != nil {
			if errors.Is(err, errTooLong) {
				q.breaks(line, err)
			}
			return answer{}, err
		}
		if n, ok := parseDone(line); ok && n == c.number {
			return answer{kind: kindDone, job: n}, nil
		}
		a, err := parse(line)
		switch {
		case err != nil:
		case a.kind == kindHello:
			err = errSecondHello
		case a.job != 0 && a.job != c.number:
			err = errStrange
		}
		if err != nil {
			q.breaks(line, err)
			return answer{}, err
		}
		switch {
		case a.kind.ends():
			return a, nil
		case a.job == 0:
			q.aside(&a)
		default:
			c.take(&a)
		}
	}
}

var (
	errSecondHello = errors.New("is a second hello")
	errStrange     = errors.New("names a job that it does not have")
	errHalf        = errors.New("has no end")
)

// manyStrays bounds the lines taken at a time from a process without a job: endless output must
// hold up neither a job nor look.
const manyStrays = 1000

// strays handles what a process with a single slot has written without a job, and reports
// whether the process is still usable.
func (q *process) strays() bool {
	for range manyStrays {
		some, err := q.conn.waiting()
		if err != nil {
			q.hangUp(err)
			return false
		}
		if !some {
			return true
		}
		line, err := q.stray()
		if err != nil {
			if errors.Is(err, errTooLong) || errors.Is(err, errHalf) {
				q.breaks(line, err)
			}
			q.hangUp(err)
			return false
		}
		a, err := parse(line)
		switch {
		case err != nil:
		case a.kind == kindHello:
			err = errSecondHello
		// It may have been sent before the job ended, and is ignored.
		case a.kind == kindProgress, a.kind == kindRefresh, a.kind == kindReport, a.kind == kindLog && a.job != 0:
			if a.job > q.number {
				err = errStrange
			} else if a.kind == kindLog {
				a.job = 0
			} else {
				continue
			}
		case a.job != 0:
			err = errStrange
		}
		if err != nil {
			q.breaks(line, err)
			return false
		}
		q.aside(&a)
	}
	return true
}

// stray reads a line that has begun to arrive. Only a timeout ends the wait, because there is no
// job to cancel.
func (q *process) stray() ([]byte, error) {
	if !q.conn.whole() {
		if err := q.conn.file.SetReadDeadline(time.Now().Add(q.pool.o.lineFor)); err != nil {
			return nil, err
		}
		defer q.endWait()
	}
	line, err := q.conn.line()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errHalf
	}
	return line, err
}

// endWait removes the deadline, unless the process has ended in between, which sets one.
func (q *process) endWait() {
	_ = q.conn.file.SetReadDeadline(time.Time{})
	select {
	case <-q.exited:
		_ = q.conn.file.SetReadDeadline(time.Now().Add(drainFor))
	default:
	}
}
