package handler

import (
	"context"

	"github.com/resqued/resqued"
)

// Resume undoes Abandon.
func (s *Set) Resume() { s.runner.told.Unlock() }

// Run performs a job on a goroutine of its own and returns its error.
func (s *Set) Run(ctx context.Context, job *resqued.Job) error {
	ended := make(chan error, 1)
	go s.Perform(resqued.WithJob(ctx, job), job, func(err error) { ended <- err })
	return <-ended
}
