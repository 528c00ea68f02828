package workerproc

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// Requests to kill one job come through Redis, from anywhere; see store.KillRequest.
// They are looked for every askEvery, as long as a job has been running for askAfter:
// an idle process asks for nothing, and short jobs cost nothing.
const (
	askEvery = time.Second
	askAfter = time.Second
)

// requests is what one look has found.
type requests struct {
	kills map[string]store.KillRequest
	err   error
}

// askKills has the requester look, if it is time.
func (p *Process) askKills() {
	if p.asking || p.leaving || time.Since(p.askedAt) < askEvery {
		return
	}
	for _, j := range p.threads.jobs {
		if time.Since(j.begun) >= askAfter {
			p.asking, p.askedAt = true, time.Now()
			p.asks <- p.strays
			return
		}
	}
}

// requester looks for requests when the loop wants it to, and removes those that
// hit nobody. It is not the heart, which no slow answer may keep from beating.
func (p *Process) requester() {
	for {
		select {
		case <-p.work.Done():
			return
		case strays := <-p.asks:
			var r requests
			if len(strays) > 0 {
				r.err = p.d.Store.DropKills(p.work, p.id.proc, strays...)
			}
			if r.err == nil {
				r.kills, r.err = p.d.Store.Kills(p.work, p.id.proc)
			}
			p.requested <- r
		}
	}
}

// comply tells the jobs to stop that somebody wants to end. A request stays where it
// is until its job has ended, so it is found again and again.
func (p *Process) comply(r requests) {
	p.asking = false
	if r.err != nil {
		p.troubles.complain("kills", "cannot look for requests to kill jobs; trying again", zap.Error(r.err))
		return
	}
	p.strays = nil
	for token, request := range r.kills {
		j := p.threads.jobs[token]
		switch {
		case j == nil:
			p.strays = append(p.strays, token)
		case j.request == nil || *j.request != request:
			p.log.Info("told to kill a job", zap.Stringer("job", j), zap.Duration("grace", request.Grace), zap.Bool("requeue", request.Requeue))
			j.request = &request
			p.kill([]*job{j}, request.Grace)
		}
	}
}

// showKills adds to a beat which jobs were told to stop, and for which the process
// has to go.
func (p *Process) showKills(info map[string]string) {
	var killed, stubborn []string
	now := time.Now()
	for token, j := range p.threads.jobs {
		late := !now.Before(j.ends(p.cfg.TermTimeout))
		if j.doomed != nil || late {
			killed = append(killed, token)
		}
		if late {
			stubborn = append(stubborn, token)
		}
	}
	if len(killed) == 0 && !p.showed {
		return
	}
	p.showed = len(killed) > 0
	slices.Sort(killed)
	slices.Sort(stubborn)
	info[store.InfoKilled], info[store.InfoStubborn] = strings.Join(killed, " "), strings.Join(stubborn, " ")
}

// told is the cause with which the context of a job ends, and how long the job has.
type told struct {
	error
	grace time.Duration
}

// Unwrap returns what the job was told.
func (t *told) Unwrap() error { return t.error }

// Grace is how long the job may take to stop before its process has to go.
func (t *told) Grace() time.Duration { return t.grace }
