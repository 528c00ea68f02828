package workerproc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// pulse is a Redis that answers beats.
type pulse struct {
	Store
	beats, enrolled, registered int
	asked                       store.BeatRequest
	reply                       store.BeatReply
	errs                        []error // of the next beats
	mirrored                    []store.Mirror
}

func (p *pulse) Beat(_ context.Context, b store.BeatRequest) (store.BeatReply, error) {
	p.beats++
	p.asked = b
	if len(p.errs) > 0 {
		err := p.errs[0]
		p.errs = p.errs[1:]
		return store.BeatReply{}, err
	}
	return p.reply, nil
}

func (p *pulse) Records(_ context.Context, _ string, tokens []string) ([]store.Reserved, error) {
	var records []store.Reserved
	for _, token := range tokens {
		records = append(records, store.Reserved{Token: token})
	}
	return records, nil
}

func (p *pulse) Enroll(context.Context, store.Enrollment) ([]int, int, error) {
	p.enrolled++
	return []int{0}, 0, nil
}

func (p *pulse) WriteMirrors(_ context.Context, _ string, mirrors []store.Mirror) error {
	p.mirrored = append(p.mirrored, mirrors...)
	return nil
}

func (p *pulse) Register(context.Context, store.Registration) error {
	p.registered++
	return nil
}

func beating(t *testing.T) (*parts, *beats, *pulse) {
	t.Helper()
	s, p := setup(t), &pulse{}
	s.d.Store = p
	x := s.exchanges()
	k := &kills{shared: s.shared, exchanges: x}
	b := newBeats(s.shared, newRegistrar(s.shared), x.threads, k,
		&leftovers{shared: s.shared, exchanges: x, threads: x.threads}, newReports(s.shared, x.threads, k, x.threads.counted))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.heart(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s, b, p
}

func TestBeats(t *testing.T) {
	t.Parallel()

	t.Run("a beat renews the lease from when it was sent, and is not doubled", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		j := s.job("1")
		j.LockKey, j.stop.fails = "l", true
		b.threads.done = 5
		s.lease.renewed = 0
		before := procfs.BootTime()
		b.beat()
		b.beat()
		r := <-b.answers
		b.onBeat(r)
		require.Equal(t, 1, p.beats)
		require.Equal(t, []store.Running{{Token: "1", LockKey: "l"}}, p.asked.Jobs)
		require.Equal(t, "1", p.asked.Info[store.InfoFails])
		require.Equal(t, "5", p.asked.Info["done"])
		require.GreaterOrEqual(t, s.lease.renewed, before)
		require.Equal(t, []string{proc.Beat}, s.told())
	})

	t.Run("one that is wanted meanwhile follows", func(t *testing.T) {
		t.Parallel()
		_, b, p := beating(t)
		b.beat()
		b.hurry()
		b.onBeat(<-b.answers)
		b.onBeat(<-b.answers)
		require.Equal(t, 2, p.beats)
		require.False(t, b.calling)
	})

	t.Run("jobs whose lock is lost are told, others are not", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		j, other := s.job("1"), s.job("2")
		p.reply.Lost, p.reply.Gone = []string{"1", "7"}, []string{"2"}
		b.beat()
		b.onBeat(<-b.answers)
		require.ErrorIs(t, j.stop.cause, resqued.ErrLockLost)
		require.NoError(t, other.stop.cause)
		require.Equal(t, 1, s.logged.FilterMessageSnippet("vanished").Len())
	})

	t.Run("fenced, the process ends; one that leaves was unregistered", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		p.errs = []error{store.ErrFenced, store.ErrFenced}
		b.beat()
		r := <-b.answers
		s.life.leaving = true
		b.onBeat(r)
		require.NoError(t, s.life.fatal)
		s.life.leaving = false
		b.beat()
		b.onBeat(<-b.answers)
		require.ErrorIs(t, s.life.fatal, ErrFenced)
	})

	t.Run("a beat that fails is repeated, and renews nothing", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		b.cfg.BeatEvery = time.Millisecond
		renewed := s.lease.renewed
		p.errs = []error{errors.New("away")}
		b.beat()
		b.onBeat(<-b.answers)
		require.Equal(t, renewed, s.lease.renewed)
		<-s.beatNow
		b.hurry()
		b.onBeat(<-b.answers)
		require.Greater(t, s.lease.renewed, renewed)
		require.Equal(t, 1, s.logged.FilterMessageSnippet("redis is back").Len())
	})

	t.Run("a Redis without its data gets the registration again", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		p.errs = []error{store.ErrWiped}
		b.beat()
		b.onBeat(<-b.answers)
		require.Equal(t, 1, p.registered)
		require.Equal(t, 2, p.beats)
		require.NoError(t, s.life.fatal)
	})

	t.Run("jobs that have run for a moment are mirrored once, and again after others removed them", func(t *testing.T) {
		t.Parallel()
		s, b, p := beating(t)
		j := s.job("1")
		b.mirror()
		require.False(t, b.calling)
		j.begun = time.Now().Add(-mirrorAfter)
		b.mirror()
		b.onBeat(<-b.answers)
		b.mirror()
		require.False(t, b.calling)
		require.Len(t, p.mirrored, 1)
		p.reply.Missing = true
		b.beat()
		b.onBeat(<-b.answers) // finds that a worker is missing
		b.onBeat(<-b.answers) // has registered it
		require.Equal(t, 1, p.enrolled)
		b.mirror()
		b.onBeat(<-b.answers)
		require.Len(t, p.mirrored, 2)
	})

	t.Run("unknown records are read and given back", func(t *testing.T) {
		t.Parallel()
		_, b, p := beating(t)
		b.leftovers.exchanges.sequence = 3
		p.reply.Left = []string{"3"}
		b.beat()
		b.onBeat(<-b.answers)
		require.False(t, b.calling)
		b.beat()
		b.onBeat(<-b.answers)
		require.True(t, b.calling)
		b.onBeat(<-b.answers)
		require.Equal(t, "3", b.leftovers.exchanges.ended[0].Job.Token)
	})

	t.Run("a process that leaves does not beat", func(t *testing.T) {
		t.Parallel()
		s, b, _ := beating(t)
		s.life.leaving = true
		b.beat()
		b.mirror()
		require.False(t, b.calling)
	})
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.exchanges()
	x.sequence = 4
	unsettled(x, "2")
	l := &leftovers{shared: s.shared, exchanges: x, threads: x.threads}
	s.job("1")
	require.Empty(t, l.suspect([]string{"1", "2", "3"}))
	require.Equal(t, []string{"3", "4"}, l.suspect([]string{"1", "2", "3", "4"}), "two beats in a row tell of it")
	require.Empty(t, l.suspect(nil))
	require.Empty(t, l.suspect([]string{"3"}))

	l.giveBack([]store.Reserved{
		{Token: "1"},
		{Token: "2"},
		{Token: "3", Payload: []byte(`{"class":"A","args":[]}`)},
		{Token: "4", Payload: []byte(`{"class":"Once","args":[]}`)},
	})
	require.Len(t, x.ended, 3)
	require.Equal(t, "3", x.ended[1].Job.Token)
	require.Equal(t, store.Returned, x.ended[1].Kind)
	require.Equal(t, "4", x.ended[2].Job.Token)
	require.Equal(t, store.Failed, x.ended[2].Kind)
	require.True(t, x.ended[1].Held && x.ended[2].Held)
}
