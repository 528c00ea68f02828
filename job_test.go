package resqued_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

func TestJobFrom(t *testing.T) {
	t.Parallel()
	require.Nil(t, resqued.JobFrom(t.Context()))
	job := &resqued.Job{Class: "A"}
	jobctx.RunOf(job).Fence = 7
	got := resqued.JobFrom(jobctx.WithJob(t.Context(), job))
	require.Same(t, job, got)
	require.EqualValues(t, 7, got.Fence())
}
