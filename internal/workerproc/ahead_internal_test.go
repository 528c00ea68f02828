package workerproc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

type sent []proc.Message

func (s *sent) Send(m proc.Message) error {
	*s = append(*s, m)
	return nil
}

func (s *sent) Recv() (proc.Message, error) { select {} }

func TestForesee(t *testing.T) {
	t.Parallel()
	const lead = 20 * time.Millisecond

	// run begins a number of jobs, at a fixed interval, until jobsPerFork are begun. It returns
	// how many were left when the master was notified.
	run := func(jobsPerFork, each int, every time.Duration, before ...time.Duration) (left []int) {
		var to sent
		s := newShared(Config{JobsPerFork: jobsPerFork, Threads: each}, Deps{Conn: &to})
		s.id.lead = lead
		a := &ahead{shared: s}
		begun := 0
		now := time.Unix(0, 0)
		for _, pause := range before { // one job each
			begun++
			a.foresee(begun, now)
			now = now.Add(pause)
		}
		for begun += each; begun < jobsPerFork; begun += each {
			a.foresee(begun, now)
			for ; len(to) > 0; to = to[1:] {
				require.Equal(t, proc.Ends, to[0].Type)
				left = append(left, jobsPerFork-begun)
			}
			now = now.Add(every)
		}
		return left
	}

	t.Run("it tells once, one and a half starts before the end", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []int{30}, run(1000, 5, 5*time.Millisecond))
		require.Equal(t, []int{300}, run(1000, 10, time.Millisecond))
	})
	t.Run("one that does not live longer than that tells as soon as it knows its pace", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []int{80}, run(100, 10, time.Millisecond))
	})
	t.Run("what was long ago does not count", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []int{300}, run(10003, 10, time.Millisecond, time.Hour, time.Hour, time.Hour))
	})
	t.Run("a start is no matter where jobs begin more seldom", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, run(100, 5, time.Second))
		require.Empty(t, run(1, 1, time.Second))
	})
}
