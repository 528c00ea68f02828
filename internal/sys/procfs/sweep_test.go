//go:build linux

package procfs

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// from is a From of processes without their descendants.
func from(pids ...int) func() ([]int, bool, error) {
	return func() ([]int, bool, error) { return pids, false, nil }
}

// judging returns a Judge with the verdicts of the map.
func judging(verdicts map[int]Verdict) func(Seen) (Verdict, error) {
	return func(p Seen) (Verdict, error) { return verdicts[p.PID], nil }
}

// shell starts a shell that has one child, and returns both.
func shell(t *testing.T) (parent *exec.Cmd, child int) {
	t.Helper()
	parent = sleeper(t, func(c *exec.Cmd) { c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "sleep 1000 & wait"} })
	require.Eventually(t, func() bool {
		pids, err := Children(parent.Process.Pid)
		require.NoError(t, err)
		if len(pids) == 1 {
			child = pids[0]
		}
		return child != 0
	}, 30*time.Second, time.Millisecond)
	below := id(t, child)
	t.Cleanup(func() { below.Kill() })
	return parent, child
}

func id(t *testing.T, pid int) ID {
	t.Helper()
	s, _ := ReadStat(pid)
	return ID{pid, s.Start}
}

// ended reports whether it has ended, reaped or not.
func (id ID) ended() bool {
	s, err := ReadStat(id.PID)
	return err != nil || s.Start != id.Start || s.Dead()
}

// A process may hide from a look behind a fork: the sweep ends when several looks in a row have
// found nothing.
func TestSweepLooksAgain(t *testing.T) {
	t.Parallel()
	late := id(t, sleeper(t).Process.Pid)
	looks, clean := 0, 0
	s := Sweep{Judge: judging(map[int]Verdict{late.PID: Ours}), From: func() ([]int, bool, error) {
		looks++
		if looks < cleanLooks {
			return nil, false, nil
		}
		clean++
		if !late.ended() {
			clean = 0
		}
		return []int{late.PID}, false, nil
	}}
	killed, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, killed)
	require.Equal(t, cleanLooks, clean)
}

// A failed look does not end a sweep, nor do unclear processes. The sweep complains once if it
// takes long, and pauses between two looks.
func TestSweepDoesNotGiveUp(t *testing.T) {
	t.Parallel()
	pid := sleeper(t).Process.Pid
	for name, trouble := range map[string]struct {
		verdict  Verdict
		err      error
		patience time.Duration
		late     int
	}{
		"a look fails":          {err: unix.EMFILE},
		"a look fails, somehow": {err: errors.New("out of order")},
		"unclear":               {verdict: Unclear, late: pid},
		"unclear for too long":  {verdict: Unclear, late: pid, patience: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, looks, said, over := time.Now(), 0, 0, false
				s := Sweep{
					From: func() ([]int, bool, error) {
						looks++
						over = over || trouble.patience == 0 && time.Since(began) > 10*time.Second
						if over {
							return nil, false, nil
						}
						return []int{pid}, false, trouble.err
					},
					Judge:    judging(map[int]Verdict{pid: trouble.verdict}),
					Patience: trouble.patience,
					Late: func(pid int, err error) {
						said++
						require.Greater(t, time.Since(began), complainAfter)
						require.Equal(t, trouble.late, pid)
						require.ErrorIs(t, err, trouble.err)
					},
				}
				killed, err := s.Run(t.Context())
				require.NoError(t, err)
				require.Zero(t, killed)
				require.Equal(t, 1, said)
				require.Equal(t, trouble.patience == 0, over)
				require.Less(t, looks, 300)

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began, over, s.Late = time.Now(), false, nil
				_, err = s.Run(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, trouble.err == nil || errors.Is(err, trouble.err))
			})
		})
	}
}

// A descendant of ours is ours, even if nothing else shows it and its parent ends first.
func TestSweepInherits(t *testing.T) {
	t.Parallel()
	parent, child := shell(t)
	below := id(t, child)
	s := Sweep{From: from(parent.Process.Pid), Judge: judging(map[int]Verdict{parent.Process.Pid: Ours})}
	killed, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, killed)
	require.True(t, below.ended())
}

// A look skips the descendants of a spared process, but not those of another one.
func TestSweepSpares(t *testing.T) {
	t.Parallel()
	for verdict, want := range map[Verdict]int{Spared: 0, Other: 1} {
		parent, child := shell(t)
		s := Sweep{
			From:  func() ([]int, bool, error) { return []int{parent.Process.Pid}, true, nil },
			Judge: judging(map[int]Verdict{parent.Process.Pid: verdict, child: Ours}),
		}
		killed, err := s.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, killed)
	}
}

// A pid of ours may be reused. The new process and its descendants are not ours.
func TestSweepHitsNoLaterProcess(t *testing.T) {
	t.Parallel()
	parent, child := shell(t)
	now := id(t, parent.Process.Pid)
	before := ID{now.PID, now.Start - 1}
	s := Sweep{From: from(now.PID, child), Judge: judging(nil), known: map[ID]bool{before: false}}
	require.NoError(t, s.claim(before, []int{child}))
	require.NoError(t, s.claim(now, []int{sleeper(t).Process.Pid}), "listed below it, and another's child by now")
	s.kill(before)
	killed, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, killed)
	require.Equal(t, map[ID]bool{before: false}, s.known)
	require.False(t, now.ended())
	require.False(t, id(t, child).ended())
}

// A listed child may have ended since, and its pid may be another process's.
func TestSweepWalksOverNoLaterProcess(t *testing.T) {
	t.Parallel()
	first, later := sleeper(t).Process.Pid, sleeper(t).Process.Pid
	var judged []int
	s := Sweep{
		From: func() ([]int, bool, error) { return []int{first}, true, nil },
		Judge: func(p Seen) (Verdict, error) {
			judged = append(judged, p.PID)
			return Other, nil
		},
		children: func(pid int) ([]int, error) { return map[int][]int{first: {later}}[pid], nil },
	}
	_, _, err := s.look(s.kill)
	require.NoError(t, err)
	require.Equal(t, []int{first}, judged)
}

// A dead child is reaped if it is ours and no code waits for it.
func TestSweepReaps(t *testing.T) {
	t.Parallel()
	mine, awaited, other := ended(t, false), ended(t, false), ended(t, false)
	s := Sweep{
		From:  from(mine, awaited, other),
		Judge: judging(map[int]Verdict{mine: Ours, awaited: Ours}),
		Reap:  func(pid int) bool { return pid != awaited },
	}
	killed, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, killed)
	_, err = ReadStat(mine)
	require.Error(t, err)
	require.True(t, id(t, awaited).ended())
	require.True(t, id(t, other).ended())
}
