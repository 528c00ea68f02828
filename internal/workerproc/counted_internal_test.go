package workerproc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread"
)

// deaf is a master that reads nothing for a while.
type deaf struct {
	*sent
	full bool
}

func (d *deaf) Send(m proc.Message) error {
	if d.full {
		return proc.ErrFull
	}
	return d.sent.Send(m)
}

func TestCountedJobsReachTheMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		master := &deaf{sent: s.master}
		s.link.conn = master
		c := &counted{shared: s.shared}
		host := history.NewCollector("vm")
		heard := func() map[history.Name]*history.Sum {
			for _, m := range *s.master {
				require.Equal(t, proc.Counted, m.Type)
				require.NoError(t, host.Add(time.Now(), m.Sums))
			}
			*s.master = nil
			all := map[history.Name]*history.Sum{}
			for _, minute := range host.Take() {
				for name, sum := range minute.Sums {
					if all[name] == nil {
						all[name] = &history.Sum{}
					}
					all[name].Merge(sum)
				}
			}
			return all
		}

		c.send()
		require.Empty(t, *s.master, "there is nothing to send")
		ms, unknown := time.Millisecond, statsd.Unknown
		for _, end := range []struct {
			result thread.Result
			ran    time.Duration
		}{
			{thread.Done, ms},
			{thread.Interrupted, ms},
			{thread.Failed, ms},
			{thread.Failed, unknown},
			{thread.Retried, ms},
			{thread.Dropped, unknown},
			{thread.Discarded, ms},
			{thread.Discarded, unknown},
			{thread.Requeued, ms},
			{thread.Requeued, unknown},
		} {
			c.end("Mail", "out", end.result, end.ran, time.Second)
		}
		c.end("Mail", "out", thread.Done, ms, 0)
		c.send()
		require.Empty(t, *s.master, "it has just looked")
		<-time.After(countedEvery)
		master.full = true
		c.send()
		master.full = false
		<-time.After(countedEvery)
		c.end("Mail", "out", thread.Done, ms, 0)
		c.send()
		sum := heard()[history.Name{Kind: history.Queue, Name: "out"}]
		require.Equal(t, []uint64{10, 3, 4, 1}, []uint64{sum.Runs, sum.Failed, sum.Unrun, sum.Interrupted})
		require.EqualValues(t, 8, sum.Run.Count())
		require.EqualValues(t, 6, sum.Wait.Count(), "of jobs that have run and say when they were pushed")

		c.end("Mail", "out", thread.Done, ms, 0)
		c.sendAll()
		require.Len(t, heard(), 4, "class, queue, host and all")
		s.link.lose()
		c.end("Mail", "out", thread.Done, ms, 0)
		c.sendAll()
		require.Empty(t, heard())
	})
}
