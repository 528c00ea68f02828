package workerproc_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/workerproc"
)

func TestAHandlerThatEndsItsGoroutineEndsOnlyTheJob(t *testing.T) {
	t.Parallel()
	f := start(t, handlers{
		"Leave": func(context.Context, *resqued.Job) error {
			runtime.Goexit()
			return nil
		},
		"Stay": func(context.Context, *resqued.Job) error { return nil },
	}, options{cfg: workerproc.Config{Threads: 1}})
	f.push(`{"class":"Leave","args":[1]}`, `{"class":"Leave","args":[2]}`, `{"class":"Stay","args":[]}`)
	eventually(t, "all jobs end", func() bool { return f.processed() == 3 })
	require.Len(t, f.failed(), 2)
	f.drain()
}
