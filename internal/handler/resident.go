package handler

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cmdslice"
	"github.com/resqued/resqued/internal/wire"
)

// resident performs the jobs of a class by a runner, whose processes stay.
type resident struct {
	resqued.Command
	set    *Set
	runner Runner
}

// external returns what performs the jobs of a class with a Command.
func (s *Set) external(class resqued.Class) (resqued.Handler, error) {
	if class.Command.Runner == "" {
		c, err := newCommand(class, s.runner)
		if err != nil {
			return nil, err
		}
		return c.perform, nil
	}
	c := *class.Command
	if len(c.Argv) > 0 || c.Dir != "" || len(c.Env) > 0 {
		return nil, fmt.Errorf("class %q names the runner %q, so its command must have no program, directory and environment of its own", class.Name, c.Runner)
	}
	runner := s.runners[c.Runner]
	if runner == nil {
		return nil, fmt.Errorf("class %q names the runner %q, which is not there: add it under runners in the configuration", class.Name, c.Runner)
	}
	c.KillAfter = s.runner.patience(c.KillAfter)
	return (&resident{c, s, runner}).perform, nil
}

// perform performs one job.
func (c *resident) perform(ctx context.Context, job *resqued.Job) error {
	if !c.runner.Knows(job.Class) {
		return newUnknownClass(job.Class, c.set.names)
	}
	if slices := cmdslice.Of(&c.Command); slices != nil {
		return slices(ctx, job, func(ctx context.Context, s *cmdslice.Slice) error {
			named := *job
			named.Deadline = s.Ends
			return c.run(ctx, &named, s)
		})
	}
	return c.run(ctx, job, nil)
}

func (c *resident) run(ctx context.Context, job *resqued.Job, s *cmdslice.Slice) error {
	// A refresh that Redis does not answer must not outlive the job for long.
	asking, answered := context.WithCancel(ctx)
	defer answered()
	log := c.set.log.With(zap.String("class", wire.Printable(job.Class, shownName)), zap.String("job", wire.Printable(job.ID, shownName)))
	refresh := newRefresher(log, func() error { return resqued.RefreshLock(asking) })
	err := c.runner.Perform(ctx, job, c.KillAfter, s, refresh.ask)
	answered()
	refresh.end()
	c.set.runner.tells()
	return err
}
