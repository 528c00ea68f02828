package app

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap/zapcore"
)

// journalSocket is where journald accepts entries in its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL). Tests replace it.
var journalSocket = "/run/systemd/journal/socket"

const (
	journalPrefix = "RESQUED_"
	// maxJournalField is the longest name of a field, in bytes.
	maxJournalField = 64
)

// newJournalCore returns a core for out, which is or leads to a journalWriter. It writes entries in
// journald's native protocol, so that fields can be searched: journalctl RESQUED_CLASS=Mail.
// MESSAGE is the line of the text format.
func newJournalCore(out zapcore.WriteSyncer, level zapcore.LevelEnabler) zapcore.Core {
	name := "resqued" // SYSLOG_IDENTIFIER
	if program, err := os.Executable(); err == nil {
		name = strings.TrimSuffix(filepath.Base(program), " (deleted)")
	}
	return &lineCore{LevelEnabler: level, out: out, encode: func(e zapcore.Entry, fields []zapcore.Field) []byte {
		// PRIORITY and MESSAGE come first: journalWriter makes a line of them if the socket refuses
		// the entry.
		entry := appendJournalField(nil, "PRIORITY", priority(e.Level))
		entry = appendJournalField(entry, "MESSAGE", message(e, fields))
		entry = appendJournalField(entry, "SYSLOG_IDENTIFIER", name)
		for _, f := range fields {
			eachValue(f, func(key, text string) {
				if key = journalField(key); key != "" {
					entry = appendJournalField(entry, key, cutValue(text))
				}
			})
		}
		return entry
	}}
}

// journalField returns a field's name in the journal: capitals, digits and underscores; "" if
// nothing remains.
func journalField(key string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '_'
	}, key)
	if strings.Trim(name, "_") == "" {
		return ""
	}
	name = journalPrefix + name
	return name[:min(len(name), maxJournalField)]
}

func appendJournalField(entry []byte, name, value string) []byte {
	entry = append(entry, name...)
	if !strings.Contains(value, "\n") {
		entry = append(entry, '=')
		entry = append(entry, value...)
		return append(entry, '\n')
	}
	entry = append(entry, '\n')
	entry = binary.LittleEndian.AppendUint64(entry, uint64(len(value)))
	entry = append(entry, value...)
	return append(entry, '\n')
}

// journalWriter sends entries to journald. If the socket is missing, refuses an entry or finds
// it too large, the entry goes to the stream that journald also reads, as a line with its
// priority and without fields. It blocks while journald is slow, so it belongs behind a
// logqueue.
type journalWriter struct {
	socket string
	stream io.Writer

	mu   sync.Mutex
	conn *net.UnixConn // nil = not connected
}

func (w *journalWriter) Write(entry []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.send(entry) == nil {
		return len(entry), nil
	}
	if _, err := io.WriteString(w.stream, journalLine(entry)); err != nil {
		return 0, err
	}
	return len(entry), nil
}

// send sends an entry. It reconnects once if the connection is broken because journald has
// recreated its socket.
func (w *journalWriter) send(entry []byte) (err error) {
	for range 2 {
		if w.conn == nil {
			if w.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: w.socket, Net: "unixgram"}); err != nil {
				w.conn = nil
				return err
			}
		}
		if _, err = w.conn.Write(entry); err == nil {
			return nil
		}
		_ = w.conn.Close()
		w.conn = nil
	}
	return err
}

// journalLine returns an entry as a line with its priority, for the stream.
func journalLine(entry []byte) string {
	rest, ok := strings.CutPrefix(string(entry), "PRIORITY=")
	level, rest, _ := strings.Cut(rest, "\n")
	message, found := strings.CutPrefix(rest, "MESSAGE=")
	if message, _, _ = strings.Cut(message, "\n"); !ok || !found {
		return strconv.Quote(string(entry)) + "\n" // not one of ours
	}
	return fmt.Sprintf("<%s>%s\n", level, message)
}
