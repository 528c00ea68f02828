package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// logged returns the output of a logger of a format to a pipe.
func logged(t *testing.T, format, level string, say func(log *zap.Logger)) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	log := newLogger(w, format, level)
	say(log)
	require.NoError(t, log.Sync())
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

func TestLogger(t *testing.T) {
	say := func(log *zap.Logger) {
		log.Debug("hidden")
		log.With(zap.Int("pid", 4700)).Info("ready", zap.Int("workers", 4), zap.String("queues", "critical,reports:25%"),
			zap.Duration("after", 1500*time.Millisecond), zap.Error(errors.New("a b")), zap.Skip())
		log.Warn("evil\n<0>name", zap.String("class", "x\ny\x1b[2J"), zap.String("empty", ""), zap.Strings("list", []string{"a", "b"}))
	}

	t.Run("text is one line for an entry, whatever it holds", func(t *testing.T) {
		lines := strings.Split(logged(t, "text", "info", say), "\n")
		require.Len(t, lines, 3)
		require.Regexp(t, `^\d\d:\d\d:\d\d INFO ready pid=4700 workers=4 queues=critical,reports:25% after=1\.5s error="a b"$`, lines[0])
		require.Regexp(t, `^\d\d:\d\d:\d\d WARN evil\\n<0>name class="x\\ny\\x1b\[2J" empty="" list="\[a b\]"$`, lines[1])
	})

	t.Run("anything but a terminal gets JSON", func(t *testing.T) {
		lines := strings.Split(logged(t, "auto", "debug", say), "\n")
		require.Len(t, lines, 4)
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[1]), &entry))
		require.Equal(t, "INFO", entry["level"])
		require.Equal(t, "ready", entry["msg"])
		require.InDelta(t, 4700, entry["pid"], 0)
		require.Contains(t, entry, "time")
	})

	t.Run("the journal gets priorities and no time, as lines where its socket is not there", func(t *testing.T) {
		defer func(path string) { journalSocket = path }(journalSocket)
		journalSocket = t.TempDir() + "/none"
		r, w, err := os.Pipe()
		require.NoError(t, err)
		info, err := w.Stat()
		require.NoError(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, stat.Ino))
		log := newLogger(w, "auto", "warn")
		log.Error("broken", zap.Int("code", 1))
		require.NoError(t, log.Sync())
		require.NoError(t, w.Close())
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "<3>broken code=1\n", string(text))
	})

	t.Run("a JOURNAL_STREAM of another file is not believed", func(t *testing.T) {
		t.Setenv("JOURNAL_STREAM", "1:1")
		require.Contains(t, logged(t, "auto", "info", func(log *zap.Logger) { log.Info("x") }), `"msg":"x"`)
	})

	t.Run("a huge value is cut", func(t *testing.T) {
		text := logged(t, "text", "info", func(log *zap.Logger) {
			log.Info("x", zap.String("plain", strings.Repeat("y", 1<<20)), zap.String("quoted", strings.Repeat(" ", 1<<20)))
		})
		require.Less(t, len(text), 3*maxLogValue)
	})
}
