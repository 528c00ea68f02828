package runner

import (
	"errors"
	"time"
)

func (c *call) many() (begun bool, err error) {
	q, p := c.q, c.q.pool
	c.lines = make(chan answer, 8)
	q.mu.Lock()
	q.number++
	c.number = q.number
	q.calls[c.number] = c
	q.mu.Unlock()
	over, err := c.hand()
	if err != nil { // the line is incomplete, so the job has not begun
		cancelled := c.settle(over)
		c.disarm()
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
	cancelled := c.settle(over)
	c.disarm()
	if cancelled || c.outOfTime {
		p.leave(q)
	}
	p.put(q, ok)
	if !ok {
		return true, c.lost()
	}
	if c.outOfTime {
		<-q.ended
	}
	return true, c.judge(&a)
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

// read reads the lines of a process with several slots, until its end.
func (q *process) read() {
	var until time.Time // set once the process has ended: until when its last words are delivered
	for {
		line, err := q.conn.line()
		if err != nil {
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
				until = time.Now().Add(drainFor)
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
