//go:build linux

package top

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/term"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/test/system/harness"
)

// source is what a test lets Run see.
type source struct {
	mu     sync.Mutex
	err    error
	queues []*view.Queue
	panics bool
	killed []*view.Job
	looks  int
}

func (s *source) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *source) Snap(context.Context) (*view.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.panics {
		panic("a defect")
	}
	if s.err != nil {
		return nil, s.err
	}
	return &view.Snapshot{At: time.Now(), Queues: s.queues, Jobs: []*view.Job{job("Import", "p0", "7", 9)}}, nil
}

func (s *source) Pause(context.Context, string, bool) (string, error) {
	return "", errors.New("no rights\x1b[2J")
}

func (s *source) Kill(_ context.Context, job *view.Job) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = append(s.killed, job)
	return "asked " + job.Class + " to stop", nil
}

// shown is a run on a terminal of its own.
type shown struct {
	*testing.T
	*source
	ours, theirs *os.File
	before       *term.State
	mu           sync.Mutex
	text         strings.Builder
	ended        chan any // what Run has panicked with, or returned
}

func start(t *testing.T) *shown {
	t.Helper()
	s := &shown{T: t, source: &source{queues: []*view.Queue{queue("mail", 3, view.QueueRuns)}}, ended: make(chan any, 1)}
	s.ours, s.theirs = harness.Terminal(t)
	before, err := term.GetState(int(s.theirs.Fd()))
	require.NoError(t, err)
	s.before = before
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.ours.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	first, err := s.Snap(t.Context())
	require.NoError(t, err)
	go func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				s.ended <- r
				return
			}
			s.ended <- err
		}()
		err = Run(t.Context(), Options{
			In: s.theirs, Out: s.theirs, Source: s.source, First: first, Describe: error.Error,
			Model: NewModel(Model{Where: "redis://db", Every: 10 * time.Millisecond, KillAfter: time.Second}),
		})
	}()
	s.await("mail") // from now on keys are not echoed
	return s
}

func (s *shown) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *shown) await(part string) {
	s.Helper()
	require.Eventually(s, func() bool { return strings.Contains(s.screen(), part) }, time.Minute, 5*time.Millisecond, "%q", part)
}

func (s *shown) press(keys string) {
	s.Helper()
	_, err := s.ours.WriteString(keys)
	require.NoError(s, err)
}

// end waits for the end of Run, and demands that the terminal is as it was before.
func (s *shown) end() any {
	s.Helper()
	var how any
	select {
	case how = <-s.ended:
	case <-time.After(time.Minute):
		s.Fatal("it does not end")
	}
	s.await(leaveScreen)
	require.True(s, strings.HasPrefix(s.screen(), enterScreen))
	require.True(s, strings.HasSuffix(s.screen(), leaveScreen))
	now, err := term.GetState(int(s.theirs.Fd()))
	require.NoError(s, err)
	require.Equal(s, s.before, now)
	return how
}

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("an outage is said and passes", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.set(func() { s.err = errors.New("connection refused") })
		s.await("Redis away for <1s: connection refused")
		s.set(func() { s.err, s.queues = nil, []*view.Queue{queue("afterwards", 1, view.QueueRuns)} })
		s.await("afterwards")
		s.press("q")
		require.Nil(t, s.end())
	})

	t.Run("a killed job", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.press("3K")
		s.await("Kill Import[42] (7)? y/n")
		s.press("y")
		s.await("asked Import to stop")
		s.set(func() { require.Len(t, s.killed, 1) })
		s.press("1p")
		s.await(`no rights\x1b[2J`)
		s.press("\x03")
		require.Nil(t, s.end())
	})

	t.Run("frozen it asks for nothing", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.press(" ")
		s.await("frozen")
		s.press("?") // by the time this is drawn what was under way has come, or comes once
		s.await("Any key goes back.")
		var looks int
		s.set(func() { looks = s.looks })
		for range 5 {
			s.press("??")
		}
		s.press("sq")
		require.Nil(t, s.end())
		s.set(func() { require.LessOrEqual(t, s.looks, looks+2) })
	})

	t.Run("a panic gives the terminal back first", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.set(func() { s.panics = true })
		require.Contains(t, s.end(), "a defect")
	})

	t.Run("the end of the terminal is the end", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		require.NoError(t, s.ours.Close())
		select {
		case how := <-s.ended:
			require.Nil(t, how)
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	})
}

func TestOnlyChangedLinesAreDrawn(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	screen := &terminal{out: writer}
	buf := make([]byte, 4096)
	drawn := func(width int, lines ...string) string {
		require.NoError(t, screen.draw(lines, width, 24))
		require.NoError(t, reader.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := reader.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
	require.Equal(t, "\x1b[2J\x1b[1;1H\x1b[2Ka\x1b[2;1H\x1b[2Kb", drawn(80, "a", "b"))
	require.Equal(t, "\x1b[2;1H\x1b[2Kc", drawn(80, "a", "c"))
	require.NoError(t, screen.draw([]string{"a", "c"}, 80, 24), "nothing")
	require.Equal(t, "\x1b[2;1H\x1b[2K", drawn(80, "a"))
	require.Equal(t, "\x1b[2J\x1b[1;1H\x1b[2Ka", drawn(60, "a"), "another size: all of it")
}

func TestNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { _ = null.Close() })
	err = Run(t.Context(), Options{In: null, Out: null, Source: &source{}, First: snapshot(1), Model: NewModel(Model{Every: time.Hour})})
	require.ErrorIs(t, err, syscall.ENOTTY)
}
