package store

import (
	"errors"
	"net"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

const maxTrouble = 200

// Trouble is a problem with Redis, for people.
type Trouble struct {
	// Refused: it answers, but refuses the command; otherwise it does not answer.
	Refused bool
	// Text is its answer, or the connection's error.
	Text string
}

// TroubleOf returns the problem behind a call's error.
func TroubleOf(err error) Trouble {
	t := Trouble{Text: rdb.Reply(err)}
	if t.Refused = t.Text != ""; !t.Refused {
		t.Text = err.Error()
		if op, ok := errors.AsType[*net.OpError](err); ok {
			t.Text = op.Error()
		}
	}
	t.Text = wire.Printable(strings.TrimRight(t.Text, ". "), maxTrouble)
	return t
}

// Kind is equal for troubles to report as one: texts of connections contain ports.
func (t Trouble) Kind() string {
	if !t.Refused {
		return "away"
	}
	word, _, _ := strings.Cut(t.Text, " ")
	return word
}

// String returns "away" or "refusing", and the text.
func (t Trouble) String() string {
	if t.Refused {
		return "refusing: " + t.Text
	}
	return "away: " + t.Text
}
