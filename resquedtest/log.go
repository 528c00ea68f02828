package resquedtest

import (
	"bytes"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLog returns a logger that writes to the log of the test while it runs.
func newLog(t testing.TB) *zap.Logger {
	to := &testLog{tb: t}
	t.Cleanup(to.close)
	config := zap.NewDevelopmentEncoderConfig()
	config.TimeKey, config.CallerKey, config.StacktraceKey = "", "", ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), to, zap.InfoLevel))
}

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

// close drops all further lines: a job that was given up may outlive its test.
func (l *testLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
