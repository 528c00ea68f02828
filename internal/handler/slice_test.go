package handler_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/handler/cmdslice"
)

// sliced is a command that works one slice of a long job.
type sliced struct {
	*fixture
	slice cmdslice.Slice
	over  chan struct{}
	mu    sync.Mutex
	lines []cmdslice.Line
}

// newSliced records all lines, and answers each with itself.
func newSliced(t *testing.T, script string, change ...func(*handler.Options, *resqued.Class)) *sliced {
	t.Helper()
	s := &sliced{over: make(chan struct{})}
	s.slice = cmdslice.Slice{
		Args: raw(`"north"`), Run: "r-1", Number: 3, Fence: 17, State: []byte(`{"n": 1.50}`), Message: "so\nfar", Over: s.over,
		Ends: time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC), Grace: time.Hour, MaxLine: 1 << 20, Report: s.report,
	}
	change = append(change, func(_ *handler.Options, c *resqued.Class) {
		cmdslice.Set(c.Command, func(ctx context.Context, _ any, run cmdslice.RunFunc) error {
			return run(ctx, &s.slice)
		})
	})
	s.fixture = setup(t, script, change...)
	return s
}

func (s *sliced) report(_ context.Context, line cmdslice.Line) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line.Text = bytes.Clone(line.Text)
	s.lines = append(s.lines, line)
	return line.Text, nil
}

func (s *sliced) texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var texts []string
	for _, line := range s.lines {
		texts = append(texts, string(line.Text))
	}
	return texts
}

func TestSliceInput(t *testing.T) {
	t.Parallel()
	t.Run("the run comes on stdin and in the environment", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `cat > in; echo "$RESQUED_REPLY_FD $RESQUED_LONG_RUN $RESQUED_LONG_SLICE $RESQUED_LONG_FENCE $RESQUED_JOB_DEADLINE" > env`)
		require.NoError(t, s.Run(t.Context(), &resqued.Job{ID: "r-1.3", Class: "Run", Queue: "q", Args: raw(`"r-1"`), Attempt: 1}))
		require.Equal(t, `{"id":"r-1.3","class":"Run","args":["north"],"queue":"q","attempt":1,"max_attempts":null,"enqueued_at":null,`+
			`"deadline":"2026-11-22T15:00:00Z","run":"r-1","slice":3,"fence":17,"units":0,"message":"so\nfar","state":{"n": 1.50}}`, s.read(t, "in"))
		require.Equal(t, "4 r-1 3 17 2026-11-22T15:00:00Z", s.read(t, "env"))
	})
	t.Run("an ordinary command has no fourth descriptor", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `if [ -e /proc/self/fd/4 ]; then echo yes; else echo no; fi > four`)
		require.NoError(t, f.run(t.Context()))
		require.Equal(t, "no", f.read(t, "four"))
	})
}

func TestSliceReports(t *testing.T) {
	t.Parallel()
	t.Run("each line is taken, and its reply comes before the next", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `for i in 1 2 3; do echo "{\"i\":$i}" >&3; read -r line <&4; echo "$line" >> out; done; echo end >> out`)
		require.NoError(t, s.run(t.Context()))
		require.Equal(t, []string{`{"i":1}`, `{"i":2}`, `{"i":3}`}, s.texts())
		require.Equal(t, "{\"i\":1}\n{\"i\":2}\n{\"i\":3}\nend", s.read(t, "out"))
	})
	t.Run("replies that are not read hold up neither side", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `i=0; while [ $i -lt 20000 ]; do echo "line number $i"; i=$((i+1)); done >&3; cat <&4 | tail -1 > last & wait`)
		s.slice.Grace = time.Minute
		done := s.start(t.Context())
		require.Eventually(t, func() bool { return len(s.texts()) == 20000 }, soon, time.Millisecond)
		close(s.over)
		require.NoError(t, wait(t, done))
	})
	t.Run("what was written before the end is taken, however long that takes", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `for i in 1 2 3 4 5; do printf '%06000d\n' $i >&3; done; printf torn >&3; echo $$ > pid`) // more than one read
		first := true
		report := s.slice.Report
		s.slice.Report = func(ctx context.Context, line cmdslice.Line) ([]byte, error) {
			if first {
				first = false
				pid := s.pid(t, "pid")
				require.Eventually(t, func() bool { return gone(pid) || zombie(pid) }, soon, time.Millisecond)
				<-time.After(1500 * time.Millisecond) // longer than a pipe is waited for
			}
			return report(ctx, line)
		}
		require.NoError(t, s.run(t.Context()))
		texts := s.texts()
		require.Len(t, texts, 6)
		require.Equal(t, strings.Repeat("0", 5999)+"5", texts[4])
		require.Equal(t, "torn", texts[5])
		require.True(t, s.lines[5].Torn)
		require.False(t, s.lines[4].Torn)
	})
	t.Run("a stranger that holds the descriptor does not hold the job", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo last >&3`)
		done := s.start(t.Context())
		stranger, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(s.pid(t, "pid")), "fd", "3"), os.O_WRONLY, 0)
		require.NoError(t, err)
		defer func() { _ = stranger.Close() }()
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600))
		require.NoError(t, wait(t, done))
		require.Equal(t, []string{"last"}, s.texts())
	})
	t.Run("lines of any kind and size", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `{ printf '\0\377\n\n  \n'; head -c 300000 /dev/zero | tr '\0' x; echo; head -c 40000 /dev/urandom | tr -d '\n'; echo; echo last; } >&3`)
		s.slice.MaxLine = 200000
		require.NoError(t, s.run(t.Context()))
		require.Len(t, s.lines, 4)
		require.Equal(t, "\x00\xff", string(s.lines[0].Text))
		require.Len(t, s.lines[1].Text, 200000)
		require.Equal(t, 100000, s.lines[1].Left)
		require.Equal(t, "last", string(s.lines[3].Text))
		require.Zero(t, s.lines[3].Left)
	})
	t.Run("a report that is refused ends the command, and is its error", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `trap 'echo more >&3; exit 0' TERM; echo $$ > pid; echo bad >&3; while :; do sleep 0.01; done`)
		refused, calls := errors.New("refused"), 0
		s.slice.Report = func(context.Context, cmdslice.Line) ([]byte, error) {
			calls++
			return nil, refused
		}
		require.ErrorIs(t, s.run(t.Context()), refused)
		require.Equal(t, 1, calls, "nothing is taken after it")
		require.True(t, gone(s.pid(t, "pid")))
	})
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(rest, "Z")
}

func TestSliceEnds(t *testing.T) {
	t.Parallel()
	const ready = `echo $$ > pid; `
	for _, tc := range []struct {
		name, script string
		end          cmdslice.End
		fails        string
	}{
		{"by itself", `exit 0`, cmdslice.ByItself, ""},
		{"told, with code 0", `trap 'exit 0' TERM; ` + ready + `while :; do sleep 0.01; done`, cmdslice.Told, ""},
		{"told, by the signal", ready + `while :; do sleep 0.01; done`, cmdslice.ByTerm, ""},
		{"told, with the code of a shell", `trap 'exit 143' TERM; ` + ready + `while :; do sleep 0.01; done`, cmdslice.ByTerm, ""},
		{"told, and never ends", `trap '' TERM; ` + ready + `while :; do sleep 0.01; done`, cmdslice.ByKill, ""},
		{"told, with an error", `trap 'echo no >&2; exit 3' TERM; ` + ready + `while :; do sleep 0.01; done`, 0, "sh: exit code 3: no"},
		{"not told, by another TERM", `kill -TERM $$`, 0, "sh: ended by SIGTERM"},
		{"told, and asks to run again", `trap 'exit 75' TERM; ` + ready + `while :; do sleep 0.01; done`, 0, "requeue"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSliced(t, tc.script)
			if tc.end == cmdslice.ByKill {
				s.slice.Grace = 50 * time.Millisecond
			}
			done := s.start(t.Context())
			if strings.Contains(tc.script, ready) {
				s.pid(t, "pid")
				close(s.over)
			}
			err := wait(t, done)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.end, s.slice.End)
		})
	}
	t.Run("only the first process is told", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `trap 'over=1; echo > told' TERM; echo $$ > pid
			sh -c 'echo $$ > child; while [ ! -e go ]; do sleep 0.01; done; echo unit done > unit' & wait; wait; echo $over > over`)
		done := s.start(t.Context())
		s.pid(t, "pid")
		child := s.pid(t, "child")
		close(s.over)
		s.read(t, "told")
		require.Never(t, func() bool { return gone(child) }, 100*time.Millisecond, 5*time.Millisecond)
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600))
		require.NoError(t, wait(t, done))
		require.Equal(t, "unit done", s.read(t, "unit"))
		require.Equal(t, "1", s.read(t, "over"))
	})
	t.Run("a kill while it may still run on is a kill", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `trap 'echo told >> told' TERM; echo $$ > pid; while :; do sleep 0.01; done`, killAfter(100*time.Millisecond))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := s.start(ctx)
		pid := s.pid(t, "pid")
		close(s.over)
		s.read(t, "told")
		cancel(resqued.ErrKilled)
		require.ErrorIs(t, wait(t, done), resqued.ErrKilled)
		require.True(t, gone(pid))
	})
	t.Run("one that is stopped is told all the same", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `echo $$ > pid; while :; do sleep 0.01; done`)
		done := s.start(t.Context())
		require.NoError(t, unix.Kill(s.pid(t, "pid"), unix.SIGSTOP))
		close(s.over)
		require.NoError(t, wait(t, done))
		require.Equal(t, cmdslice.ByTerm, s.slice.End)
	})
	t.Run("of much on stderr the end is kept", func(t *testing.T) {
		t.Parallel()
		s := newSliced(t, `i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
		err := s.run(t.Context())
		require.ErrorContains(t, err, "line 2999")
		require.Less(t, len(err.Error()), 8<<10)
	})
}
