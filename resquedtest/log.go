package resquedtest

import (
	"bytes"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLog returns a logger whose lines stand in the log of the test, as long as that runs.
func newLog(t testing.TB) *zap.Logger {
	to := &testLog{tb: t}
	t.Cleanup(to.close)
	config := zap.NewDevelopmentEncoderConfig()
	config.TimeKey, config.CallerKey, config.StacktraceKey = "", "", ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), to, zap.InfoLevel))
}

// testLog writes to the log of a test.
type testLog struct {
	mu   sync.Mutex
	tb   testing.TB
	over bool
}

// Write implements zapcore.WriteSyncer.
func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.tb.Logf("resqued: %s", bytes.TrimSpace(line))
	}
	return len(line), nil
}

// Sync implements zapcore.WriteSyncer.
func (l *testLog) Sync() error { return nil }

// close drops all further lines: a job that was given up may go on for longer than its test.
func (l *testLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
