package app

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/resqued/resqued/internal/sys/logqueue"
)

// journald is a fake that takes entries over a socket.
type journald struct {
	path string
	conn *net.UnixConn
}

func newJournald(t *testing.T, path string) *journald {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &journald{path: path, conn: conn}
}

// entry returns the fields of the next entry.
func (j *journald) entry(t *testing.T) map[string]string {
	t.Helper()
	buffer := make([]byte, 1<<20)
	require.NoError(t, j.conn.SetReadDeadline(time.Now().Add(time.Minute)))
	n, err := j.conn.Read(buffer)
	require.NoError(t, err)
	return parseEntry(t, string(buffer[:n]))
}

// parseEntry reads an entry as journald does.
func parseEntry(t *testing.T, text string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for text != "" {
		line, rest, ok := strings.Cut(text, "\n")
		require.True(t, ok, "%q", text)
		name, value, plain := strings.Cut(line, "=")
		if !plain {
			n := binary.LittleEndian.Uint64([]byte(rest[:8]))
			value, rest = rest[8:8+n], rest[8+n:]
			require.True(t, strings.HasPrefix(rest, "\n"))
			rest = rest[1:]
		}
		require.Regexp(t, `^[A-Z][A-Z0-9_]{0,63}$`, name)
		fields[name] = value
		text = rest
	}
	return fields
}

// toJournal returns a logger to a fake socket, and the stream's contents.
func toJournal(t *testing.T, socket string) (*zap.Logger, func() string) {
	t.Helper()
	w, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	require.NoError(t, err)
	writer := &journalWriter{socket: socket, stream: w}
	log := zap.New(newJournalCore(logqueue.New(writer, 0, func(int) {}), zapcore.DebugLevel))
	t.Cleanup(func() {
		if writer.conn != nil {
			_ = writer.conn.Close()
		}
	})
	return log, func() string {
		require.NoError(t, log.Sync())
		require.NoError(t, w.Close())
		text, err := os.ReadFile(w.Name())
		require.NoError(t, err)
		return string(text)
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()

	t.Run("an entry has the fields of its line", func(t *testing.T) {
		t.Parallel()
		j := newJournald(t, filepath.Join(t.TempDir(), "socket"))
		log, stream := toJournal(t, j.path)
		log.With(zap.Int("pid", 7)).Warn("job failed", zap.String("class", "Mail"), zap.String("queue", "a b"), zap.String("job", "j=1"),
			zap.String("error", "first\nsecond\x1b"), zap.Duration("ran", 1500*time.Millisecond), zap.String("x-y.z", "w"), zap.Error(errors.New("why")), zap.Skip(),
			zap.Inline(zapcore.ObjectMarshalerFunc(func(e zapcore.ObjectEncoder) error {
				e.AddString("inner", "in")
				return nil
			})))
		got := j.entry(t)
		require.Equal(t, `job failed pid=7 class=Mail queue="a b" job="j=1" error="first\nsecond\x1b" ran=1.5s x-y.z=w error=why inner=in`, got["MESSAGE"])
		delete(got, "MESSAGE")
		require.Equal(t, filepath.Base(os.Args[0]), got["SYSLOG_IDENTIFIER"])
		delete(got, "SYSLOG_IDENTIFIER")
		require.Equal(t, map[string]string{
			"PRIORITY": "4", "RESQUED_PID": "7", "RESQUED_CLASS": "Mail", "RESQUED_QUEUE": "a b", "RESQUED_JOB": "j=1",
			"RESQUED_ERROR": "why", "RESQUED_RAN": "1.5s", "RESQUED_X_Y_Z": "w", "RESQUED_INNER": "in",
		}, got)
		log.Debug("one\nline", zap.String("text", "two\nlines"))
		got = j.entry(t)
		require.Equal(t, `one\nline text="two\nlines"`, got["MESSAGE"])
		require.Equal(t, "two\nlines", got["RESQUED_TEXT"])
		require.Equal(t, "7", got["PRIORITY"])
		require.Empty(t, stream())
	})

	t.Run("without a socket lines go to the stream, and come back to one that appears", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "socket")
		log, stream := toJournal(t, path)
		log.Error("broken", zap.Int("code", 1))
		require.NoError(t, log.Sync())
		first := newJournald(t, path)
		log.Info("two")
		require.Equal(t, "two", first.entry(t)["MESSAGE"])
		require.NoError(t, first.conn.CloseRead()) // a child of another test may hold the socket until its exec
		require.NoError(t, first.conn.Close())
		require.NoError(t, os.Remove(path))
		log.Info("three")
		require.NoError(t, log.Sync())
		second := newJournald(t, path)
		log.Info("four")
		require.Equal(t, "four", second.entry(t)["MESSAGE"])
		require.Equal(t, "<3>broken code=1\n<6>three\n", stream())
	})

	t.Run("what is too large for the socket goes to the stream as a whole", func(t *testing.T) {
		t.Parallel()
		j := newJournald(t, filepath.Join(t.TempDir(), "socket"))
		log, stream := toJournal(t, j.path)
		var fields []zap.Field
		for range 60 {
			fields = append(fields, zap.String("k", strings.Repeat("v", maxLogValue)))
		}
		log.Info("large", fields...)
		log.Info("small")
		require.Equal(t, "small", j.entry(t)["MESSAGE"])
		got := stream()
		require.True(t, strings.HasPrefix(got, "<6>large k=vvv"), "%.50q", got)
		require.Greater(t, len(got), 60*maxLogValue)
	})

	t.Run("a journal that reads nothing stops nobody", func(t *testing.T) {
		t.Parallel()
		j := newJournald(t, filepath.Join(t.TempDir(), "socket"))
		log, _ := toJournal(t, j.path)
		for range 5000 { // far more than a socket holds
			log.Info("line")
		}
		require.ErrorIs(t, log.Sync(), logqueue.ErrStalled)
		go func() { // what waits is read, so that the test leaves nothing behind
			buffer := make([]byte, 1<<16)
			for {
				if _, err := j.conn.Read(buffer); err != nil {
					return
				}
			}
		}()
		require.Eventually(t, func() bool { return log.Sync() == nil }, time.Minute, time.Millisecond)
	})
}

func FuzzJournalEntry(f *testing.F) {
	f.Add("class", "Mail", "msg")
	f.Add("", "a\nb", "\n")
	f.Add("é=\n", "", "<0>x")
	f.Fuzz(func(t *testing.T, key, value, message string) {
		var written []byte
		out := writerFunc(func(p []byte) (int, error) {
			written = append([]byte(nil), p...)
			return len(p), nil
		})
		log := zap.New(newJournalCore(zapcore.AddSync(out), zapcore.DebugLevel))
		log.Info(message, zap.String(key, value))
		fields := parseEntry(t, string(written))
		require.NotContains(t, fields["MESSAGE"], "\n")
		if name := journalField(key); name != "" {
			require.Equal(t, cutValue(value), fields[name])
		}
		line := journalLine(written)
		require.Equal(t, "<6>"+fields["MESSAGE"]+"\n", line)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
