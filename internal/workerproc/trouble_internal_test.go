package workerproc

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

func TestTroubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.troubles.complain("poll", "p")
		s.troubles.complain("poll", "p")
		s.troubles.complain("beat", "b")
		require.Equal(t, 2, s.logged.Len(), "each subject once")
		<-time.After(complainEvery)
		s.troubles.complain("poll", "p")
		require.Equal(t, 3, s.logged.Len(), "and again after a minute")
		s.troubles.redisBack()
		require.Equal(t, 3, s.logged.Len(), "it was not away")
		s.troubles.redisAway(errors.New("EOF"))
		s.troubles.redisBack()
		s.troubles.complain("poll", "p")
		require.Equal(t, 5, s.logged.Len(), "what comes after redis was away is new")
	})
}

// broken is a socket that accepts nothing.
type broken struct{ sent }

func (*broken) Send(proc.Message) error { return errors.New("broken pipe") }

func TestLink(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.link.tell(proc.Message{Type: proc.Found})
	require.Equal(t, []string{proc.Found}, s.told())
	s.link.conn = &broken{}
	s.link.tell(proc.Message{Type: proc.Found})
	require.Equal(t, 1, s.logged.Len())
	s.link.lose()
	require.NoError(t, s.link.send(proc.Message{Type: proc.Bye}), "there is no master to mind")
	require.Nil(t, s.link.messages)
}

func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAlarm()
		now := time.Now()
		a.wake(now.Add(time.Hour))
		a.wake(now.Add(time.Second))
		a.wake(now.Add(2 * time.Second)) // it looks before
		<-time.After(time.Second)
		synctest.Wait()
		require.True(t, rings(a.bell))
		<-time.After(time.Second)
		synctest.Wait()
		require.False(t, rings(a.bell))
		a.wake(now.Add(3 * time.Second))
		<-time.After(time.Second)
		synctest.Wait()
		require.True(t, rings(a.bell))
		<-time.After(2 * time.Hour) // the first timer ends with the bubble
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	l := newLease(35*time.Second, nil)
	l.renewed = 100 * time.Second
	require.Equal(t, 127*time.Second, l.end().Round(time.Millisecond))
	require.Equal(t, 7*time.Second, l.grace().Round(time.Millisecond))
	_, stop := l.silent(119*time.Second, 0)
	require.False(t, stop)
	silent, stop := l.silent(121*time.Second, 0)
	require.True(t, stop)
	require.Equal(t, 6*time.Second, l.left(silent).Round(time.Millisecond))
	_, stop = l.silent(121*time.Second, 110*time.Second)
	require.False(t, stop, "the job's lock was taken after the beat")
	l.elsewhere = func() time.Duration { return 105 * time.Second }
	require.Equal(t, 105*time.Second, l.end())
	l.elsewhere = func() time.Duration { return 0 }
	require.Equal(t, 127*time.Second, l.end().Round(time.Millisecond), "it has no lock there")
}
