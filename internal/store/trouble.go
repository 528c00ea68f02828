package store

import (
	"errors"
	"net"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// maxTrouble bounds the text of a Trouble.
const maxTrouble = 200

// Trouble is what is wrong with Redis, for people.
type Trouble struct {
	// Refused: it answers, but refuses what is asked of it; else it does not answer.
	Refused bool
	// Text is what it answers, or what became of the connection.
	Text string
}

// TroubleOf returns what an error of a call says about Redis.
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

// Kind is equal for troubles that are reported as one: texts of connections name ports.
func (t Trouble) Kind() string {
	if !t.Refused {
		return "away"
	}
	word, _, _ := strings.Cut(t.Text, " ")
	return word
}

// String returns "away" or "refuses", and the text.
func (t Trouble) String() string {
	if t.Refused {
		return "refuses: " + t.Text
	}
	return "away: " + t.Text
}
