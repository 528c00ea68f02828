package longjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// DefaultGrace is the default of Options.Grace.
	DefaultGrace = 30 * time.Second
	// commandStep is the step of a progress report without one.
	commandStep = "work"
	// lineExtra is what a line may have in addition to a state of the largest size.
	lineExtra = 64 << 10
)

// Command returns a class of long jobs for resqued.Handlers.Register. A new process of an
// external program performs each slice. docs/longjob.md describes the program's input and its
// reports. Command panics if Options.Queue is empty or an option other than Retries is
// negative.
func Command(class string, c resqued.Command, o Options) resqued.Class {
	o.check(class)
	o = o.defaults()
	cmdslice.Set(&c, func(ctx context.Context, job any, run cmdslice.RunFunc) error {
		return perform(ctx, job.(*resqued.Job), class, o, func(ctx context.Context, r *Runner, args resqued.Args) error {
			return r.command(ctx, args, run)
		})
	})
	return resqued.Class{Name: class, Queue: o.Queue, FurtherQueue: o.RequeueQueue, Resumes: true, Command: &c}
}

type commandSlice struct {
	r *Runner
	// lines counts the reports, saved the ones whose state was saved.
	lines, saved int
	// heard is closed by the first report.
	heard chan struct{}
	// moved means that a saved state differed from the one before.
	moved       bool
	yield, done bool
	began       time.Time // start of the time that the next progress report covers
}

func (r *Runner) command(ctx context.Context, args resqued.Args, run cmdslice.RunFunc) error {
	r.touched = nil // until the program reports a step, which it need not do
	// If the slice is over already, the program would only be told to stop.
	if err := r.Continue(ctx); err != nil {
		return err
	}
	c := &commandSlice{r: r, began: r.began, heard: make(chan struct{})}
	leaving, over, ended := false, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		leaving = c.untilOver(ended)
	}()
	s := &cmdslice.Slice{
		Args: args, Run: r.UUID(), Number: r.slice.Number, Fence: r.Fence(), Units: r.units, State: r.ownState(), Message: r.message,
		Over: over, Ends: r.began.Add(r.o.Slice), Grace: r.o.Grace, Report: c.report, MaxLine: r.o.StateLimit + lineExtra,
	}
	err := run(ctx, s)
	close(ended)
	<-over
	if err != nil {
		return err
	}
	return c.judge(s, leaving)
}

// untilOver returns when the command is to be told that its slice is over, or when the command
// has ended. leaving means that the worker process exits or that the run is paused.
func (c *commandSlice) untilOver(ended <-chan struct{}) (leaving bool) {
	r := c.r
	over := time.NewTimer(time.Until(r.began.Add(r.o.Slice)))
	defer over.Stop()
	select {
	case <-ended:
		return false
	case <-r.leaving:
		return true
	case <-r.pausing:
		return true
	case <-over.C:
	}
	// A command without a report may not even have begun. It gets more time, so that each slice
	// does something even on a slow machine.
	late := time.NewTimer(r.o.Grace)
	defer late.Stop()
	select {
	case <-r.leaving:
		return true
	case <-r.pausing:
		return true
	case <-ended:
	case <-c.heard:
	case <-late.C:
	}
	return false
}

// endSlice ends a slice that the next one follows. If worked, earlier deaths do not count.
func (r *Runner) endSlice(worked bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.yielded = true
	if worked {
		r.tried++
	}
	return ErrYield
}

// judge decides how a slice ends whose command has not failed by itself. Only a command that
// says so, or that ends before it was told to, has completed the run.
func (c *commandSlice) judge(s *cmdslice.Slice, leaving bool) error {
	hung := fmt.Sprintf("it ran on for %s after it was told that its slice is over (SIGTERM), and was killed", s.Grace)
	switch {
	case c.yield, c.done:
		if s.End == cmdslice.ByKill {
			c.r.warn(hung)
		}
		if c.yield {
			return c.r.endSlice(true)
		}
		return nil
	case s.End == cmdslice.ByItself:
		return nil
	case c.moved, leaving:
		if s.End == cmdslice.ByKill {
			c.r.warn(hung)
		}
		return c.r.endSlice(c.moved)
	}
	how := map[cmdslice.End]string{
		cmdslice.Told:   `it exited with 0 after it was told that its slice is over (SIGTERM), but said neither {"yield":true} nor {"done":true}`,
		cmdslice.ByTerm: "it was ended by the SIGTERM that tells of the end of its slice",
		cmdslice.ByKill: hung,
	}[s.End]
	text := how + "; and it has saved nothing new in the whole slice, so that the next one would do the same again"
	if s.Stderr != "" {
		text += "\n" + s.Stderr
	}
	return errors.New(text)
}

func (c *commandSlice) report(ctx context.Context, line cmdslice.Line) (reply []byte, err error) {
	if c.lines++; c.lines == 1 {
		close(c.heard)
	}
	if cause := context.Cause(ctx); errors.Is(cause, resqued.ErrLockLost) {
		return nil, cause // nothing more is saved then
	}
	var m report
	switch {
	case line.Left > 0:
		err = fmt.Errorf("it is longer than %d bytes", len(line.Text))
	default:
		m, err = parseReport(line.Text)
	}
	if err != nil {
		err = fmt.Errorf("line %d on descriptor 3 is not a message: %w: %s", c.lines, err, wire.Printable(string(line.Text), 200))
		if line.Torn {
			c.r.warn(err.Error()) // the command ended before it had written all of it
			return nil, nil
		}
		return nil, err
	}
	if m.odd != "" {
		c.r.warn(fmt.Sprintf("line %d on descriptor 3: %s", c.lines, m.odd))
	}
	c.yield, c.done = c.yield || m.yield, c.done || m.done
	if m.shown != nil {
		c.show(m.shown)
	}
	c.r.count(m.units)
	if m.set != nil {
		if err := c.save(ctx, m.set); err != nil {
			return nil, err
		}
		reply = fmt.Appendf(nil, `{"saved":%d}`, c.saved)
	}
	if m.unlock != "" {
		c.r.unlock(ctx, m.unlock)
	}
	if m.lock != "" {
		return c.lock(ctx, m.lock)
	}
	return reply, nil
}

// save saves a reported state, before the next line is read.
func (c *commandSlice) save(ctx context.Context, set map[string]*string) error {
	if err := c.r.merge(set); err != nil {
		return fmt.Errorf("line %d on descriptor 3: %w", c.lines, err)
	}
	moved := c.r.worked()
	if err := c.r.commit(ctx); err != nil {
		return err
	}
	c.saved++
	c.moved = c.moved || moved
	return nil
}

// lock tries once to take a lock of CriticalUnit. The command asks again.
func (c *commandSlice) lock(ctx context.Context, name string) (reply []byte, err error) {
	got, err := c.r.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return append(wire.AppendString(fmt.Appendf(nil, `{"saved":%d,"lock":`, c.saved), name), fmt.Sprintf(`,"held":%t}`, got)...), nil
}

// count adds units that the command has done. They are saved with the next state, or within
// seconds.
func (r *Runner) count(units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.units += units
	r.news = r.news || units > 0
}

// worked notes a reported state. A new one is progress.
func (r *Runner) worked() (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if moved = len(r.dirty) > 0; moved {
		r.progress, r.failures = true, 0
	}
	return moved
}

func (c *commandSlice) show(s *shown) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news = true
	if s.message != nil {
		r.message = cut(*s.message)
	}
	name := commandStep
	if s.step != nil {
		name = cut(*s.step)
	}
	if s.step == nil && s.done == nil && s.total == nil {
		return // only a message
	}
	if r.touched == nil {
		r.touched = map[string]bool{}
	}
	r.touched[name] = true
	st := r.shown(name)
	if s.done != nil {
		st.Done = *s.done
	}
	if s.total != nil {
		st.Total = *s.total
	}
	st.Finished = st.Total > 0 && st.Done >= st.Total
	spent := time.Since(c.began).Milliseconds()
	st.Milliseconds += spent
	c.began = c.began.Add(time.Duration(spent) * time.Millisecond)
}

// ownState returns the program's state as a JSON object, its values byte for byte.
func (r *Runner) ownState() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := []byte{'{'}
	for _, key := range slices.Sorted(maps.Keys(r.state)) {
		name, own := strings.CutPrefix(key, stateOwn)
		if !own {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(wire.AppendString(b, name), ':')
		// A value that is not JSON can only have been written by another program.
		if value := r.state[key]; valid(value) {
			b = append(b, value...)
		} else {
			b = wire.AppendString(b, value)
		}
	}
	return append(b, '}')
}

func valid(value string) bool {
	return json.Valid([]byte(value)) && utf8.ValidString(value) && !strings.ContainsAny(value, "\r\n")
}
