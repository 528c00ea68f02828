package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// cleanPasses is how often Sweep must find nothing. One look over /proc is no
// snapshot: a process may fork behind the reader's back.
const cleanPasses = 3

// Sweep kills with SIGKILL every process that belongs to the worker process proc
// and returns when none is left, or with an error when ctx ends before. The
// worker process itself counts too, so call it after it was reaped. killed
// counts the processes to which it was sent.
//
// Out of reach is only a process that has emptied its environment and outlives
// its parent.
func Sweep(ctx context.Context, proc string) (killed int, err error) {
	look := survey
	if ours(proc) {
		look = func() (processes, error) { return below(proc) }
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := time.Millisecond
	signalled := map[child]bool{}
	defer func() { killed = len(signalled) }()
	for clean := 0; clean < cleanPasses; {
		found, err := look()
		if err != nil && blind(err) == nil {
			return killed, fmt.Errorf("sweep %s: %w", proc, err)
		}
		// Who could not look must not say that nobody is left.
		left, unseen := 0, err
		for pid, p := range found {
			if !found.belongs(pid, proc) {
				if found.undecided(pid) {
					left = pid
				}
				continue
			}
			left = pid
			if !p.dying && found.kill(pid) {
				signalled[child{pid, p.start}] = true
			}
		}
		if left == 0 && unseen == nil {
			clean++
			continue
		}
		clean = 0
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return killed, errors.Join(fmt.Errorf("sweep %s: process %d is still there: %w", proc, left, ctx.Err()), unseen)
		case <-pause.C:
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
	return killed, nil
}

// kill sends SIGKILL to pid if that is still the process that was seen.
func (ps processes) kill(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	// The handle is open: from here on pid cannot become another process.
	s, err := readStat(strconv.Itoa(pid))
	return err == nil && s.start == ps[pid].start && p.Kill() == nil
}
