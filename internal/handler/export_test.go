package handler

import (
	"context"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/mark"
)

func init() { slowStart, slowToCatch = time.Second, 50*time.Millisecond }

// Patience sets how long jobs wait for resources to start their command.
func (s *Set) Patience(d time.Duration) { s.runner.scarcity.patience = d }

// SkipRuns advances the count of runs by n.
func SkipRuns(n int64) { mark.Skip(n) }

// Resume undoes Abandon.
func (s *Set) Resume() { s.runner.told.Unlock() }

// Run performs a job on a goroutine of its own and returns its error.
func (s *Set) Run(ctx context.Context, job *resqued.Job) error {
	ended := make(chan error, 1)
	go s.Perform(jobctx.WithJob(ctx, job), job, func(err error) { ended <- err })
	return <-ended
}
