package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// clockSource is the source of a library that moves the clock of the server that loads it. It
// does not end in .c because it is not part of this package's program.
//
//go:embed clock.c.txt
var clockSource []byte

func (s *Server) clockFile() string { return filepath.Join(s.dir, "clock") }

// makeClock builds the library for this server.
func (s *Server) makeClock(tb testing.TB) {
	tb.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		tb.Skip("a server whose clock can be moved needs a C compiler")
	}
	source := filepath.Join(s.dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", s.clockFile()+".so", source).CombinedOutput(); err != nil { //nolint:gosec // of this test
		tb.Fatalf("build a clock that can be moved: %v\n%s", err, out)
	}
	s.setClock(tb, 0)
}

// StepClock moves the clock of a server with the option Clock by a duration.
func (s *Server) StepClock(tb testing.TB, by time.Duration) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
	s.setClock(tb, s.ahead)
}

func (s *Server) setClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	file, err := os.OpenFile(s.clockFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	// In one write, and never truncated: the server may read it at any time.
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())), 0); err != nil { //nolint:gosec // negative ones are read as such
		tb.Fatal(err)
	}
}
