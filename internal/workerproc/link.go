package workerproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// link is the connection to the master. A goroutine of its own, read, receives; the loop owns
// the rest and sends.
type link struct {
	conn     Conn
	log      *zap.Logger
	troubles *troubles
	messages chan proc.Message // closed when the master is gone; nil once the loop knows
	gone     bool              // the master is gone

	news   int // messages by happened in the second from newsAt
	newsAt time.Time
}

func newLink(conn Conn, log *zap.Logger, troubles *troubles) *link {
	return &link{conn: conn, log: log, troubles: troubles, messages: make(chan proc.Message)}
}

// read passes on the master's messages until the socket or work ends.
func (l *link) read(work context.Context) {
	defer close(l.messages)
	for {
		m, err := l.conn.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) && work.Err() == nil {
				l.log.Warn("the socket to the master broke", zap.Error(err))
			}
			return
		}
		select {
		case l.messages <- m:
		case <-work.Done():
			return
		}
	}
}

func (l *link) lose() { l.messages, l.gone = nil, true }

// send sends a message; without a master it does nothing.
func (l *link) send(m proc.Message) error {
	if l.gone {
		return nil
	}
	if err := l.conn.Send(m); err != nil {
		return fmt.Errorf("report %q to the master: %w", m.Type, err)
	}
	return nil
}

func (l *link) tell(m proc.Message) {
	if err := l.send(m); err != nil {
		l.troubles.complain("report", "the master does not read", zap.Error(err))
	}
}

// newsPerSecond bounds event messages: thousands of locks may be lost at once, and reports must
// not wait behind that.
const newsPerSecond = 5

func (l *link) happened(kind store.EventKind, text string, n int) {
	now := time.Now()
	if now.Sub(l.newsAt) >= time.Second {
		l.newsAt, l.news = now, 0
	}
	if l.news++; l.news <= newsPerSecond {
		_ = l.send(proc.Message{Type: proc.Happened, Cause: string(kind), Reason: wire.Printable(text, store.MaxEventText), Busy: n})
	}
}

// masterOf returns the part of a process id that names the master.
func masterOf(id string) string {
	if i := strings.LastIndexByte(id, ':'); i > 0 {
		return id[:i]
	}
	return id
}
