package workerproc

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
)

// Requests to kill one job come through Redis, from anywhere; see store.KillRequest. They are
// read every askEvery while a job has run for askAfter: idle processes and short jobs cost
// nothing.
var (
	askEvery = time.Second
	askAfter = time.Second
)

// killRequests finds requests to kill jobs in hand. The goroutine of run calls Redis; it reads
// only id and d. The loop owns the other fields, and both use the channels.
type killRequests struct {
	*shared
	kills *kills

	asking  bool
	askedAt time.Time
	strays  []string        // tokens of requests for jobs that are not in hand
	asks    chan []string   // to the goroutine: tokens of requests for jobs that are not in hand
	found   chan foundKills // from the goroutine
}

func newKillRequests(s *shared, kills *kills) *killRequests {
	return &killRequests{shared: s, kills: kills, asks: make(chan []string, 1), found: make(chan foundKills, 1)}
}

type foundKills struct {
	kills map[string]store.KillRequest
	err   error
}

// ask starts a look, if one is due.
func (q *killRequests) ask() {
	if q.asking || q.life.leaving || time.Since(q.askedAt) < askEvery {
		return
	}
	for _, j := range q.jobs {
		if time.Since(j.begun) >= askAfter {
			q.asking, q.askedAt = true, time.Now()
			q.asks <- q.strays
			return
		}
	}
}

// run looks for requests when the loop asks, and removes those without a job. It is separate
// from heart, which no slow answer may delay.
func (q *killRequests) run(work context.Context) {
	for {
		select {
		case <-work.Done():
			return
		case strays := <-q.asks:
			var r foundKills
			if len(strays) > 0 {
				r.err = q.d.Store.DropKills(work, q.id.proc, strays...)
			}
			if r.err == nil {
				r.kills, r.err = q.d.Store.Kills(work, q.id.proc)
			}
			q.found <- r
		}
	}
}

// onKillRequests stops the jobs that requests name. A request stays in Redis until its job has
// ended, so it is found again.
func (q *killRequests) onKillRequests(r foundKills) {
	q.asking = false
	if r.err != nil {
		q.troubles.complain("kills", "cannot look for requests to kill jobs; trying again", zap.Error(r.err))
		return
	}
	q.strays = nil
	for token, request := range r.kills {
		j := q.jobs[token]
		switch {
		case j == nil:
			q.strays = append(q.strays, token)
		case j.stop.request == nil || *j.stop.request != request:
			q.log.Info("told to kill a job", j.named(), zap.Duration("grace", request.Grace), zap.Bool("requeue", request.Requeue))
			j.stop.request = &request
			q.kills.kill(resqued.ErrKilled, []*job{j}, request.Grace)
		}
	}
}
