package resquedtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// server is the Redis of a test. It is in this process, and only advance moves its clock.
type server struct {
	mini *miniredis.Miniredis
	url  string

	mu    sync.Mutex
	clock time.Time
}

func startServer(t testing.TB, at time.Time) (*server, error) {
	if at.IsZero() {
		at = time.Now()
	}
	s := &server{mini: miniredis.NewMiniRedis(), clock: at.Truncate(time.Second)}
	s.mini.SetTime(s.clock)
	if err := s.mini.Start(); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	t.Cleanup(s.mini.Close)
	s.url = "redis://" + s.mini.Addr() + "/0"
	return s, nil
}

func (s *server) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *server) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
	s.mini.SetTime(s.clock)
	s.mini.FastForward(d) // expires keys, which SetTime does not
}
