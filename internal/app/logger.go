package app

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/sys/logqueue"
	"github.com/resqued/resqued/internal/wire"
)

// maxLogValue bounds one value of a text log line, in bytes.
const maxLogValue = 8 << 10

// newLogger is NewLogger without the level.
func newLogger(f *os.File, format, level string) *zap.Logger {
	log, _ := NewLogger(f, format, level)
	return log
}

// NewLogger returns a logger for f and its level, which can be changed. With format "auto" the
// form depends on f: text for a terminal, entries with fields for the journal, JSON lines
// otherwise. Formats "text" and "json" select one.
//
// Logging never waits for the reader of f: see logqueue. Call Sync before the process ends.
func NewLogger(f *os.File, format, level string) (*zap.Logger, zap.AtomicLevel) {
	min, err := zap.ParseAtomicLevel(level)
	if err != nil {
		min = zap.NewAtomicLevel()
	}
	journal := isJournal(f, os.Getenv("JOURNAL_STREAM"))
	var log *zap.Logger
	var dst io.Writer = f
	if journal && format != "json" {
		dst = &journalWriter{socket: journalSocket, stream: f}
	}
	out := logqueue.New(dst, 0, func(lines int) {
		log.Warn("lines of this log were dropped, because nothing read it for a while", zap.Int("lines", lines))
	})
	var core zapcore.Core
	switch {
	case format == "json", format != "text" && !journal && !term.IsTerminal(int(f.Fd())):
		encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
			TimeKey: "time", LevelKey: "level", MessageKey: "msg", NameKey: "logger", StacktraceKey: "stack",
			EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.CapitalLevelEncoder,
			EncodeDuration: zapcore.StringDurationEncoder, EncodeName: zapcore.FullNameEncoder,
		})
		core = zapcore.NewCore(encoder, out, min)
	case journal:
		core = newJournalCore(out, min)
	default:
		core = &lineCore{LevelEnabler: min, out: out, encode: textLine}
	}
	log = zap.New(core)
	rdb.SetLogger(func(text string) { log.Debug("redis client", zap.String("text", text)) })
	return log, min
}

// isJournal reports whether f is the journal's socket. stream is JOURNAL_STREAM, in which
// systemd names the socket as device:inode. The variable alone proves nothing: processes with
// another output inherit it.
func isJournal(f *os.File, stream string) bool {
	info, err := f.Stat()
	if err != nil || stream == "" {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// lineCore writes each entry in one piece, so that lines of several processes on one terminal do not
// mix.
type lineCore struct {
	zapcore.LevelEnabler
	out    zapcore.WriteSyncer
	encode func(e zapcore.Entry, fields []zapcore.Field) []byte
	fields []zapcore.Field
}

// With returns a core whose entries begin with fields.
func (c *lineCore) With(fields []zapcore.Field) zapcore.Core {
	clone := *c
	clone.fields = slices.Concat(c.fields, fields)
	return &clone
}

// Check adds the core to an entry that it writes.
func (c *lineCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *lineCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	_, err := c.out.Write(c.encode(e, slices.Concat(c.fields, fields)))
	return err
}

// Sync waits until all entries are written.
func (c *lineCore) Sync() error { return c.out.Sync() }

// textLine is "10:41:02 INFO ready pid=4700 workers=4".
func textLine(e zapcore.Entry, fields []zapcore.Field) []byte {
	return []byte(e.Time.Format("15:04:05 ") + e.Level.CapitalString() + " " + message(e, fields) + "\n")
}

// message is "ready pid=4700 workers=4".
func message(e zapcore.Entry, fields []zapcore.Field) string {
	var b strings.Builder
	b.WriteString(wire.Printable(e.Message, maxLogValue))
	for _, f := range fields {
		eachValue(f, func(key, text string) { b.WriteString(" " + wire.Printable(key, maxLogValue) + "=" + quoteValue(text)) })
	}
	return b.String()
}

// priority returns the syslog number of a level.
func priority(l zapcore.Level) string {
	switch {
	case l >= zapcore.DPanicLevel:
		return "2"
	case l == zapcore.ErrorLevel:
		return "3"
	case l == zapcore.WarnLevel:
		return "4"
	case l == zapcore.InfoLevel:
		return "6"
	}
	return "7"
}

// eachValue calls do for each value of a field as text: a field may have none or several.
func eachValue(f zapcore.Field, do func(key, text string)) {
	if f.Type == zapcore.SkipType {
		return
	}
	m := zapcore.NewMapObjectEncoder()
	f.AddTo(m)
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		if key == f.Key+"Verbose" { // added by zap to errors that print more with %+v
			continue
		}
		switch v := m.Fields[key].(type) {
		case string:
			do(key, v)
		case time.Duration:
			do(key, v.Round(time.Microsecond).String())
		case time.Time:
			do(key, v.Format(time.RFC3339))
		default:
			do(key, fmt.Sprint(v))
		}
	}
}

// quoteValue returns a value as one word, quoted if needed.
func quoteValue(s string) string {
	if s == "" || strings.ContainsAny(s, " \"=\t\n") || wire.Printable(s, 0) != s {
		return strconv.Quote(cutValue(s))
	}
	return wire.Printable(s, maxLogValue)
}

func cutValue(s string) string {
	if len(s) > maxLogValue {
		return s[:maxLogValue] + "…"
	}
	return s
}
