package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/store"
)

const (
	lookEvery = 100 * time.Millisecond
	// seeAndDie is what a kill takes in addition to the grace: processes look for requests each
	// second, and the master has to recover a killed one.
	seeAndDie = 5 * time.Second
	// defaultTerm is resque_term_timeout if a master does not report it.
	defaultTerm = 30 * time.Second
)

// awaitKills waits until the jobs have ended and prints the progress to a terminal. It gives up after
// the grace, or later if a process waits for its other jobs.
func awaitKills(ctx context.Context, s *session, pending []*killView, o *killOptions) error {
	until := time.Now().Add(o.force + seeAndDie)
	recycling := time.Duration(-1)
	for {
		names := make([]store.RunName, len(pending))
		for i, k := range pending {
			k.How = howRuns
			names[i] = k.job.Run
		}
		states, err := s.KillStates(ctx, names)
		if err != nil {
			return err
		}
		var left []*killView
		for i, k := range pending {
			if k.see(states[i]); k.How == howRuns {
				left = append(left, k)
			}
			s.tellPhase(k, o)
			if k.state.Stubborn && recycling < 0 {
				recycling = termTimeout(ctx, s)
				until = time.Now().Add(recycling + seeAndDie)
			}
		}
		if pending = left; len(pending) == 0 || time.Now().After(until) {
			return nil
		}
		if err := nap(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func (k *killView) see(state store.KillState) {
	switch answer := state.Answer; {
	case state.Running:
		k.How = howRuns
	case answer == nil:
		k.How = store.HowFinished
	default:
		k.How, k.Requeued, k.SiblingsLost = answer.How, answer.Requeued, answer.SiblingsLost
		k.Killed = answer.How != store.HowFinished
	}
	k.state = state
}

func (out *output) tellPhase(k *killView, o *killOptions) {
	phase := ""
	switch {
	case k.How != howRuns:
	case k.state.Stubborn:
		phase = "still running; its process is replaced when its other jobs have finished"
	case k.state.Told:
		phase = "told to stop; still running, its process goes in " + o.force.String()
	}
	if phase == "" || phase == k.phase {
		return
	}
	k.phase = phase
	if isTerminal(out.stderr) && out.flags.output != outJSON {
		out.note("%s: %s", runName(k.job), phase)
	}
}

// termTimeout is how long a process waits for its other jobs: the masters' longest
// resque_term_timeout.
func termTimeout(ctx context.Context, s *session) time.Duration {
	longest := time.Duration(0)
	masters, _ := s.MasterList(ctx)
	for _, fields := range masters {
		if ms, err := strconv.ParseInt(fields["term_timeout_ms"], 10, 64); err == nil {
			longest = max(longest, time.Duration(ms)*time.Millisecond)
		}
	}
	if longest == 0 {
		return defaultTerm
	}
	return longest
}
