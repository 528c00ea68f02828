package workerproc

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
)

// answering is a Redis that gives predefined answers to exchanges.
type answering struct {
	Store
	answers []error // nil: it is carried out
	reqs    []store.ExchangeRequest
	beats   []error
	beaten  int
	records []store.Reserved
	joined  int
}

func (a *answering) Exchange(_ context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	a.reqs = append(a.reqs, req)
	reply := store.ExchangeReply{Applied: make([]bool, len(req.Completions))}
	for i, c := range req.Completions {
		if c.Job.Token == "bad" {
			return store.ExchangeReply{}, badScript("ERR bad")
		}
		reply.Applied[i] = true
	}
	if len(a.answers) > 0 {
		err := a.answers[0]
		a.answers = a.answers[1:]
		return reply, err
	}
	return reply, nil
}

func (a *answering) Beat(context.Context, store.BeatRequest) (store.BeatReply, error) {
	a.beaten++
	if len(a.beats) == 0 {
		return store.BeatReply{}, nil
	}
	err := a.beats[0]
	a.beats = a.beats[1:]
	return store.BeatReply{}, err
}

func (a *answering) Records(context.Context, string, []string) ([]store.Reserved, error) {
	return a.records, nil
}

func (a *answering) Register(context.Context, store.Registration) error {
	a.joined++
	return nil
}

// badScript is an error of a Redis script.
type badScript string

func (e badScript) Error() string { return string(e) }
func (e badScript) RedisError()   {}

func exchanging(a *answering) *exchanger {
	s := newShared(Config{LockDuration: time.Minute}, Deps{Store: a, Log: zap.NewNop()})
	return &exchanger{s, newRegistrar(s)}
}

func TestExchangeUntilKnown(t *testing.T) {
	t.Parallel()
	request := func(tokens ...string) store.ExchangeRequest {
		req := store.ExchangeRequest{Proc: "p", Wants: []store.Want{{Token: "9"}}}
		for _, token := range tokens {
			req.Completions = append(req.Completions, store.Completion{Job: &store.Reserved{Token: token}})
		}
		return req
	}
	// exchange executes one request in a bubble.
	exchange := func(t *testing.T, a *answering, req store.ExchangeRequest, check func(t *testing.T, r exchangeResult, beatNow bell)) {
		t.Helper()
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := exchanging(a)
			check(t, e.exchangeUntilKnown(t.Context(), newLane(1), req), e.beatNow)
		})
	}

	t.Run("one that may have been carried out is repeated as such", func(t *testing.T) {
		a := &answering{answers: []error{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF}}
		exchange(t, a, request("1"), func(t *testing.T, r exchangeResult, beatNow bell) {
			require.NoError(t, r.err)
			require.Len(t, a.reqs, 3)
			require.False(t, a.reqs[0].Repeat)
			require.True(t, a.reqs[1].Repeat)
			require.True(t, a.reqs[2].Repeat)
			require.EqualValues(t, 3, a.reqs[2].Sending)
			require.Equal(t, 1, a.reqs[2].Lane)
			require.True(t, rings(beatNow), "redis is back")
		})
	})

	t.Run("one that was not carried out is sent anew", func(t *testing.T) {
		a := &answering{answers: []error{rdb.ErrRefused}}
		exchange(t, a, request("1"), func(t *testing.T, r exchangeResult, _ bell) {
			require.NoError(t, r.err)
			require.False(t, a.reqs[1].Repeat)
		})
	})

	t.Run("a lease that is past is revived by a beat, unless others have recovered it", func(t *testing.T) {
		a := &answering{answers: []error{store.ErrFenced}}
		exchange(t, a, request("1"), func(t *testing.T, r exchangeResult, _ bell) {
			require.NoError(t, r.err)
			require.Equal(t, 1, a.beaten)
		})
	})
	t.Run("fenced", func(t *testing.T) {
		a := &answering{answers: []error{store.ErrFenced}, beats: []error{store.ErrFenced}}
		exchange(t, a, request("1"), func(t *testing.T, r exchangeResult, _ bell) {
			require.ErrorIs(t, r.err, ErrFenced)
		})
	})
	t.Run("wiped", func(t *testing.T) {
		a := &answering{answers: []error{store.ErrFenced}, beats: []error{store.ErrWiped}}
		exchange(t, a, request("1"), func(t *testing.T, r exchangeResult, beatNow bell) {
			require.NoError(t, r.err)
			require.Equal(t, 1, a.joined)
			require.Empty(t, a.reqs[1].Wants, "what has ended does not wait for jobs")
			require.True(t, rings(beatNow))
		})
	})

	t.Run("a script that fails on one end holds up no other, and what was taken begins", func(t *testing.T) {
		a := &answering{records: []store.Reserved{{Token: "9"}}}
		exchange(t, a, request("1", "bad", "2"), func(t *testing.T, r exchangeResult, _ bell) {
			require.NoError(t, r.err)
			require.Equal(t, []bool{true, false, true}, r.reply.Applied)
			require.Equal(t, map[int]string{1: "ERR bad"}, r.reply.Stuck)
			require.Equal(t, a.records, r.reply.Jobs)
			for _, req := range a.reqs[apartAfter:] {
				require.Empty(t, req.Wants)
				require.True(t, req.Repeat)
			}
		})
	})

	t.Run("the end of the process ends it", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := &answering{answers: []error{errors.New("away")}}
		require.Error(t, exchanging(a).exchangeUntilKnown(ctx, newLane(0), request()).err)
	})
}

func TestExchanges(t *testing.T) {
	t.Parallel()

	t.Run("it asks on while it is answered in full, and rests when it is not", func(t *testing.T) {
		t.Parallel()
		c := stopped(t, 2, 1)
		c.idlers.idle = []int{0, 1}
		require.Equal(t, [][2]int{{0, 2}}, c.sent())
		full := exchangeResult{lane: c.lanes[0], req: store.ExchangeRequest{Wants: make([]store.Want, 2)}}
		full.reply.Jobs = make([]store.Reserved, 2)
		c.answered(full.lane)
		c.updateHunger(&full, false)
		require.True(t, c.hungry)
		c.hungry = true
		less := full
		less.reply.Jobs = nil
		c.updateHunger(&less, false)
		require.False(t, c.hungry)
		require.Empty(t, c.sent(), "nothing to tell and nothing to ask for")
		c.updateHunger(&less, true)
		require.True(t, c.hungry, "another call may have freed what this one did not find")
		c.hungry, less.reply.More = false, true
		c.updateHunger(&less, false)
		require.True(t, c.hungry, "the scan was cut short")
		for range maxRetries {
			c.updateHunger(&less, false)
		}
		require.False(t, c.hungry, "but not for ever")
	})

	t.Run("no more jobs are asked for than the process may start, and none unless it runs", func(t *testing.T) {
		t.Parallel()
		c := stopped(t, 8, 1)
		c.cfg.JobsPerFork, c.idlers.used = 10, 7
		c.idlers.idle = []int{0, 1, 2, 3, 4}
		require.Equal(t, 3, c.wantedJobs())
		c.life.state = "paused"
		require.Zero(t, c.wantedJobs())
	})

	t.Run("what could not be written is tried again, and is unrecorded until then", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stopped(t, 2, 1)
			end := store.Completion{Job: &store.Reserved{Token: "1"}}
			c.end(end, true)
			require.Equal(t, []string{"1"}, c.killedTokens())
			require.Equal(t, [][2]int{{1, 0}}, c.sent())
			require.True(t, c.carries("1", 1))
			r := exchangeResult{lane: c.lanes[0], req: store.ExchangeRequest{Completions: []store.Completion{end}}}
			r.reply.Applied, r.reply.Stuck = []bool{false}, map[int]string{0: "WRONGTYPE"}
			c.answered(r.lane)
			c.take(&r)
			require.True(t, c.carries("1", 1))
			require.Equal(t, 1, c.untold())
			require.False(t, c.settledSince(1))
			<-time.After(stuckRetry)
			c.unstick()
			require.True(t, c.unsettled())
			c.sent()
			r.req.Completions, r.reply.Stuck, r.reply.Applied = []store.Completion{end}, nil, []bool{true}
			c.answered(r.lane)
			c.take(&r)
			require.Empty(t, c.killedTokens())
			require.True(t, c.settledSince(2))
			require.False(t, c.carries("1", 0))
		})
	})

	t.Run("a look is due when exchanges look at many queues in vain", func(t *testing.T) {
		t.Parallel()
		c := stopped(t, 2, 1)
		for i := range manyQueues + 1 {
			c.queues = append(c.queues, store.Queue{Name: string(rune('A' + i))})
		}
		last := &exchangeResult{reply: store.ExchangeReply{Jobs: []store.Reserved{{Queue: c.queues[len(c.queues)-1].Name}}}}
		require.False(t, c.shouldLook(last))
		require.False(t, c.shouldLook(last))
		require.True(t, c.shouldLook(last))
		require.False(t, c.shouldLook(last))
	})
}

func TestStuckEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStuckEnds()
		end := store.Completion{Job: &store.Reserved{Token: "1"}}
		first := s.first("1")
		s.keep(end, first)
		require.True(t, s.has("1"))
		require.Len(t, s.due(nil, false), 1)
		require.False(t, s.has("1"))
		<-time.After(parkAfter)
		s.keep(end, s.first("1"))
		due := s.due(nil, false)
		require.Len(t, due, 1)
		require.True(t, due[0].Park, "it counts from when it was stuck first")
		s.keep(end, time.Now())
		require.Empty(t, s.due(nil, true), "it was tried just now")
		s.settled("1")
		require.Equal(t, time.Now(), s.first("1"))
	})
}
