package rdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Attempts after an answer that proves that nothing ran. They are few and quick: a caller with more
// time repeats the whole call itself and logs that.
const (
	attempts     = 4
	firstBackoff = 10 * time.Millisecond
)

// refusals begin error replies that prove that the command did not run. In a script, READONLY, MISCONF,
// NOREPLICAS and OOM only come at its first write, MASTERDOWN at its first command.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MOVED", "ASK",
	"NOAUTH", "WRONGPASS", "NOPERM", "NOREPLICAS", "MISCONF", "OOM", "ERR max number of clients",
}

// inScript begin the replies to a failed command in a script before Redis 7, the second if the script
// returns the error itself. The command's own reply comes last.
var inScript = []string{"ERR Error running script ", "@user_script: "}

// inTransaction begins the reply to an EXEC that was itself refused, so nothing has run.
const inTransaction = "EXECABORT Transaction discarded because of: "

// replyText returns the error reply in err, without its position in a script, or "".
func replyText(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	text := answer.Error()
	for _, place := range inScript {
		if strings.HasPrefix(text, place) {
			if _, answer, ok := strings.Cut(text, ": -"); ok {
				return answer
			}
		}
	}
	return text
}

// Reply returns the server's error reply in err, or "".
func Reply(err error) string { return replyText(err) }

// Refusal returns the entry of refusals that matches err, or "".
func Refusal(err error) string {
	text := strings.TrimPrefix(replyText(err), inTransaction)
	for _, word := range refusals {
		if rest, ok := strings.CutPrefix(text, word); ok && (rest == "" || rest[0] == ' ') {
			return word
		}
	}
	return ""
}

var (
	// ErrRefused: a script changed nothing because a key has the wrong type.
	ErrRefused = errors.New("a key in redis is in the way")
	// ErrNotSent: a command was not sent because an earlier one failed.
	ErrNotSent = errors.New("not sent")
)

// Once calls do, which sends one mutating command. It only repeats do if the error proves that the
// command did not run. go-redis would also repeat commands whose reply was lost: a script would pop
// two jobs.
func (c *Client) Once(ctx context.Context, do func() error) error {
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == attempts || !Transient(err) {
			return err
		}
		if Refusal(err) == "MOVED" {
			c.reloadCluster(ctx)
		}
		wait := time.Duration(rand.Int64N(int64(backoff))) + backoff/2
		backoff *= 3
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// Unexecuted reports whether err proves that the command did not run, so that it is safe to repeat.
func Unexecuted(err error) bool {
	if err == nil {
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == opHandshake) {
		return true
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, ErrNotSent) || errors.Is(err, ErrRefused) {
		return true
	}
	// Scripts check the types of keys before they write.
	return Refusal(err) != "" || WrongType(err) || strings.HasPrefix(replyText(err), "NOSCRIPT")
}

// Transient reports whether an unexecuted command is worth an immediate retry.
func Transient(err error) bool {
	if !Unexecuted(err) {
		return false
	}
	switch Refusal(err) {
	case "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "NOREPLICAS", "OOM", "BUSY", "LOADING":
		return false
	}
	if WrongType(err) {
		return false
	}
	var op *net.OpError
	return !errors.As(err, &op) // a refused connection does not recover within milliseconds
}

// gaveUp adds the error of an ended context to the error of a server that had not answered; the library
// only reports a timeout.
func gaveUp(ctx context.Context, err error) error {
	ended := ctx.Err()
	if until, ok := ctx.Deadline(); ok && ended == nil && !time.Now().Before(until) {
		ended = context.DeadlineExceeded // the connection's deadline came first
	}
	if ended == nil || !Unreachable(err) || errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w: %w", ended, err)
}

// Unreachable reports whether no server answered, as opposed to answering with an error.
func Unreachable(err error) bool {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) {
		return false
	}
	// On a new connection the library strips the wrapping from its error.
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return true
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		// A bare errno also implements net.Error, for example of a file that cannot be opened.
		_, bare := network.(syscall.Errno)
		return !bare
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, errForeign) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// Unauthorized reports whether the server requires a password or rejects the given one. Servers before
// Redis 6 use other words.
func Unauthorized(err error) bool {
	switch Refusal(err) {
	case "NOAUTH", "WRONGPASS":
		return true
	}
	text := replyText(err)
	for _, old := range []string{"ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH"} {
		if strings.HasPrefix(text, old) {
			return true
		}
	}
	return false
}

// WrongType reports whether a key has the wrong type. Repeating does not help until the key is
// repaired.
func WrongType(err error) bool { return strings.HasPrefix(replyText(err), "RESQUEDTYPE") }
