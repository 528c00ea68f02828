package workerproc_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/workerproc"
)

// Memory is checked when a job has ended, not only with the next report.
func TestMemoryAsAJobEnds(t *testing.T) { //nolint:paralleltest // other tests would take memory, too
	const takes = 128 << 20
	var pages []byte
	var ended atomic.Bool
	limit := proctest.Memory(os.Getpid()) + takes/2
	f := start(t, handlers{"A": func(context.Context, *resqued.Job) error {
		var err error
		if pages, err = unix.Mmap(-1, 0, takes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			return err
		}
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 1
		}
		ended.Store(true)
		return nil
	}}, options{short: true, cfg: workerproc.Config{MaxRSS: limit, Threads: 2}})
	defer func() { _ = unix.Munmap(pages) }()
	eventually(t, "a report, so that the next is not near", func() bool { return f.beat.Load() != nil })
	f.push(payload(1))
	began := time.Now()
	asks := f.expect(proc.Retires)
	took, early := time.Since(began), !ended.Load()
	eventually(t, "the end of the job", ended.Load)
	require.Equal(t, "memory", asks.Reason)
	require.Greater(t, asks.RSS, limit)
	require.Equal(t, limit, asks.MaxRSS)
	if took < proc.ReportEvery(8*time.Second)/2 && !early { // else a report has noticed it while the job took the memory
		require.LessOrEqual(t, f.beat.Load().RSS, limit, "before a report could tell")
	}
	f.drain()
}
