package workerproc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// listed is a Redis in which the process is registered, and the ends that exchanges have not
// delivered.
type listed struct {
	err            error
	held           int
	pending        bool
	stuck, unknown int
}

func (l *listed) Unregister(context.Context, string) (int, error) { return l.held, l.err }
func (l *listed) unsettled() bool                                 { return l.pending }
func (l *listed) stuckCount() int                                 { return l.stuck }
func (l *listed) untold() int                                     { return l.unknown }

func TestLeaving(t *testing.T) {
	t.Parallel()
	leaves := func(t *testing.T, test func(t *testing.T, s *parts, v *leaving, r *listed)) {
		t.Helper()
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, r := setup(t), &listed{}
			var helpers sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			v := newLeaving(ctx, &helpers, s.cfg, s.id, s.deps, s.life, s.link, s.alarm, s.jobs, r)
			v.store = r
			test(t, s, v, r)
			cancel()
			helpers.Wait()
		})
	}

	t.Run("not while it runs, has a job, or an end is to be sent", func(t *testing.T) {
		leaves(t, func(t *testing.T, s *parts, v *leaving, r *listed) {
			v.leaveIfDone()
			require.False(t, s.life.leaving)
			s.life.state = signals.Retiring
			s.job("1")
			v.leaveIfDone()
			require.False(t, s.life.leaving)
			clear(s.jobs)
			r.pending = true
			v.leaveIfDone()
			require.False(t, s.life.leaving)
			r.pending = false
			v.leaveIfDone()
			require.True(t, s.life.leaving)
			v.farewell(<-v.left, 3)
			require.Equal(t, []proc.Message{{Type: proc.Bye, Done: 3}}, []proc.Message(*s.master))
		})
	})

	t.Run("one that retires goes on trying, and is hurried by a drain", func(t *testing.T) {
		leaves(t, func(t *testing.T, s *parts, v *leaving, r *listed) {
			r.err = errors.New("away")
			s.life.state = signals.Retiring
			v.hurryUp() // nothing to hurry yet
			v.leaveIfDone()
			<-time.After(time.Hour)
			require.Empty(t, v.left)
			v.hurryUp()
			err := <-v.left
			require.ErrorIs(t, err, errListed)
			v.farewell(err, 0)
			require.Equal(t, proc.Listed, (*s.master)[0].Reason)
		})
	})

	t.Run("a drain that Redis does not record ends after the time of a kill", func(t *testing.T) {
		leaves(t, func(t *testing.T, s *parts, v *leaving, r *listed) {
			s.life.state, r.pending, r.unknown = signals.Draining, true, 1
			v.leaveIfDone()
			<-time.After(s.cfg.TermTimeout - time.Millisecond)
			v.leaveIfDone()
			require.False(t, s.life.leaving)
			<-time.After(time.Millisecond)
			v.leaveIfDone()
			require.True(t, s.life.leaving)
			err := <-v.left
			require.ErrorIs(t, err, errUnrecorded)
			v.farewell(err, 0)
			require.Equal(t, proc.Untidy, (*s.master)[0].Reason)
		})
	})

	t.Run("the drain of a process without a master is over once", func(t *testing.T) {
		leaves(t, func(t *testing.T, _ *parts, v *leaving, _ *listed) {
			v.boundDrain()
			<-time.After(time.Hour)
			require.False(t, v.drainOver(), "there is no limit")
			v.cfg.DrainTimeout = time.Minute
			v.boundDrain()
			require.False(t, v.drainOver())
			<-time.After(time.Minute + 1)
			require.True(t, v.drainOver())
			require.False(t, v.drainOver())
		})
	})
}

// counts are the inputs of reports from the other parts.
type counts struct{ done int }

func (c *counts) jobsDone() int { return c.done }
func (c *counts) orders() int   { return 2 }
func (c *counts) doomed() int   { return 1 }
func (c *counts) full() bool    { return false }

func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setup(t), &counts{done: 4}
		s.cfg.MaxRSS = 1 << 60
		s.job("1")
		r := newReports(s.cfg, s.id, s.life, s.link, s.lease, s.jobs, c, c, s.troubles, newCounted(s.link, s.deps.Log))
		r.report()
		m := (*s.master)[0]
		require.Equal(t, proc.Message{
			Type: proc.Beat, State: "running", Busy: 1, Done: 4, Kills: 2, Doomed: 1, RSS: m.RSS, LockEnd: s.lease.end(),
		}, m)
		s.told()

		<-time.After(s.cfg.Interval)
		r.found()
		r.found()
		require.Equal(t, []string{proc.Found}, s.told(), "once an interval")

		r.checkMemory()
		require.Empty(t, s.told())
		r.cfg.MaxRSS = 1
		<-time.After(weighEvery)
		r.checkMemory()
		require.Empty(t, s.told(), "no job has ended since")
		<-time.After(weighEvery)
		c.done++
		r.checkMemory()
		require.Equal(t, []string{proc.Retires}, s.told())
		c.done++
		<-time.After(weighEvery)
		r.checkMemory()
		r.report()
		require.Equal(t, []string{proc.Beat}, s.told(), "it is asked once")
	})
}

func TestSuspectsAreToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		u := newSuspects(false, s.link)
		u.tell(0, false)
		require.Empty(t, s.told(), "no news")
		u.tell(2, false)
		u.tell(2, false)
		require.Len(t, s.told(), 1)
		<-time.After(tellEvery)
		u.tell(2, false)
		u.tell(0, false)
		u.tell(0, false)
		require.Len(t, s.told(), 2)
		alone := newSuspects(true, s.link)
		alone.tell(0, true)
		alone.tell(0, false)
		require.Len(t, s.told(), 2, "the one that is for suspects always tells")
	})
}
