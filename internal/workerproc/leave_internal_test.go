package workerproc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// listed is a Redis in which the process is registered.
type listed struct {
	Store
	err  error
	held int
}

func (l *listed) Unregister(context.Context, string) (int, error) { return l.held, l.err }

func TestLeaving(t *testing.T) {
	t.Parallel()
	leaves := func(t *testing.T, test func(t *testing.T, s *parts, v *leaving, r *listed)) {
		t.Helper()
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, r := setup(t), &listed{}
			var helpers sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			s.d.Store = r
			v := newLeaving(ctx, &helpers, s.shared, s.exchanges())
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
			unsettled(v.exchanges, "1")
			v.leaveIfDone()
			require.False(t, s.life.leaving)
			v.exchanges.ended = nil
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
			s.life.state = signals.Draining
			unsettled(v.exchanges, "1")
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

func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, k := killing(t)
		s.cfg.MaxRSS = 1 << 60
		s.job("1").stop.cause = resqued.ErrKilled
		k.told = 2
		c := k.exchanges.threads
		c.done = 4
		r := newReports(s.shared, c, k, c.counted)
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
		u := &suspects{shared: s.shared}
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
		s.id.alone = true
		alone := &suspects{shared: s.shared}
		alone.tell(0, true)
		alone.tell(0, false)
		require.Len(t, s.told(), 2, "the one that is for suspects always tells")
	})
}
