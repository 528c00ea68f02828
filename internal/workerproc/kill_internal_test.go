package workerproc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

func killing(t *testing.T) (*parts, *kills) {
	t.Helper()
	s := setup(t)
	return s, &kills{shared: s.shared, exchanges: s.exchanges(), retire: func(string) {}}
}

func TestKills(t *testing.T) {
	t.Parallel()

	t.Run("a killed job is told why, the master which, and others see it at once", func(t *testing.T) {
		t.Parallel()
		s, k := killing(t)
		j, other := s.job("1"), s.job("2")
		k.exchanges.killed["0"] = true
		k.kill(resqued.ErrKilled, []*job{j}, time.Minute)
		require.ErrorIs(t, context.Cause(j.ctx), resqued.ErrKilled)
		require.NoError(t, other.ctx.Err())
		require.Equal(t, []string{"1"}, (*s.master)[0].Tokens)
		require.True(t, rings(s.beatNow))
		require.Equal(t, 2, k.doomed(), "and one that Redis has not got yet")
		info := map[string]string{}
		k.show(info)
		require.Equal(t, map[string]string{store.InfoKilled: "1", store.InfoStubborn: "", store.InfoFails: "0 1"}, info)
		delete(s.jobs, "1")
		clear(k.exchanges.killed)
		clear(info)
		k.show(info)
		require.Equal(t, map[string]string{store.InfoKilled: "", store.InfoStubborn: "", store.InfoFails: ""}, info)
		clear(info)
		k.show(info)
		require.Empty(t, info)
	})

	t.Run("a job that shall run again is not named", func(t *testing.T) {
		t.Parallel()
		s, k := killing(t)
		j := s.job("1")
		j.stop.request = &store.KillRequest{Requeue: true}
		k.kill(resqued.ErrKilled, []*job{j}, time.Minute)
		require.Empty(t, (*s.master)[0].Tokens)
		info := map[string]string{}
		k.show(info)
		require.Equal(t, map[string]string{store.InfoKilled: "1", store.InfoStubborn: "", store.InfoFails: ""}, info)
	})

	t.Run("a stubborn job ends the process, after its neighbours and what has ended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, k := killing(t)
			var retired []string
			k.retire = func(reason string) { retired = append(retired, reason) }
			k.cfg.TermTimeout = time.Minute
			j := s.job("1")
			s.job("2")
			unsettled(k.exchanges, "3")
			k.kill(resqued.ErrKilled, []*job{j}, time.Second)
			s.told()
			k.overdue()
			require.False(t, k.tainted(), "it has its grace")
			<-time.After(time.Second)
			k.overdue()
			require.True(t, k.tainted())
			require.Equal(t, []string{"tainted"}, retired)
			<-time.After(2 * parting)
			k.overdue()
			require.Zero(t, s.exits.Load(), "its neighbour may finish")
			delete(s.jobs, "2")
			k.overdue()
			require.Zero(t, s.exits.Load(), "an end may reach Redis")
			<-time.After(parting)
			k.overdue()
			require.Zero(t, s.exits.Load(), "nothing presses")
			<-time.After(unhurried - parting)
			k.overdue()
			require.EqualValues(t, 1, s.exits.Load())
			require.Equal(t, proc.Tainted, (*s.master)[0].Type)
			require.Equal(t, []string{"1"}, (*s.master)[0].Tokens)
			require.Error(t, s.life.fatal)
			<-time.After(time.Minute) // timers
		})
	})

	t.Run("a class lock that is lost stops its job", func(t *testing.T) {
		t.Parallel()
		s, k := killing(t)
		j, lost := s.job("1"), errors.New("lost")
		j.claim.Update(func(c *classlock.ClaimState) { c.Lost, c.Grace = lost, time.Hour })
		k.overdue()
		require.ErrorIs(t, context.Cause(j.ctx), lost)
		require.False(t, k.tainted())
	})

	t.Run("without a beat, jobs that hold locks or count under limits stop", func(t *testing.T) {
		t.Parallel()
		s, k := killing(t)
		locked, free, young, counts := s.job("1"), s.job("2"), s.job("3"), s.job("4")
		locked.LockKey, young.LockKey, counts.Counts = "l", "y", true
		s.lease.renewed = procfs.BootTime() - 19*time.Second
		k.watchLocks()
		require.NoError(t, locked.ctx.Err())
		s.lease.renewed = procfs.BootTime() - 21*time.Second
		young.reservedAt = procfs.BootTime()
		k.watchLocks()
		require.ErrorIs(t, context.Cause(locked.ctx), resqued.ErrLockLost)
		require.ErrorIs(t, context.Cause(counts.ctx), resqued.ErrLockLost)
		require.NoError(t, free.ctx.Err())
		require.NoError(t, young.ctx.Err())
	})

	t.Run("without master and Redis the process ends itself", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, k := killing(t)
			k.abandon()
			<-time.After(2 * orphanPatience)
			k.abandon()
			require.Zero(t, s.exits.Load(), "it has a master")
			s.link.lose()
			s.job("1")
			k.abandon()
			<-time.After(2 * orphanPatience)
			k.abandon()
			require.Zero(t, s.exits.Load(), "it has a job")
			clear(s.jobs)
			k.abandon()
			<-time.After(orphanPatience + time.Second)
			k.abandon()
			require.EqualValues(t, 1, s.exits.Load())
		})
	})
}

// requested is a Redis that holds requests.
type requested struct {
	Store
	kills   map[string]store.KillRequest
	dropped []string
	err     error
}

func (r *requested) Kills(context.Context, string) (map[string]store.KillRequest, error) {
	return r.kills, r.err
}

func (r *requested) DropKills(_ context.Context, _ string, tokens ...string) error {
	r.dropped = append(r.dropped, tokens...)
	return nil
}

func TestKillRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, k := killing(t)
		r := &requested{kills: map[string]store.KillRequest{"1": {Grace: time.Minute}, "9": {}}}
		s.d.Store = r
		q := newKillRequests(s.shared, k)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go q.run(ctx)
		j := s.job("1")
		q.ask()
		synctest.Wait()
		require.Empty(t, q.found, "short jobs cost nothing")
		<-time.After(askAfter)
		q.ask()
		q.ask()
		q.onKillRequests(<-q.found)
		require.Equal(t, time.Now().Add(time.Minute), j.stop.by)
		require.Equal(t, []string{proc.Killing}, s.told())
		require.Empty(t, r.dropped)
		<-time.After(askEvery)
		q.ask()
		q.onKillRequests(<-q.found)
		require.Empty(t, s.told(), "it is told once")
		require.Equal(t, []string{"9"}, r.dropped)
		<-time.After(askEvery)
		r.err = errors.New("away")
		q.ask()
		q.onKillRequests(<-q.found)
		require.Equal(t, 1, s.logged.FilterMessageSnippet("cannot look").Len())
		s.life.leaving = true
		<-time.After(askEvery)
		q.ask()
		synctest.Wait()
		require.Empty(t, q.found, "a process that leaves asks for nothing")
	})
}
