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

// Attempts after an answer that proves that nothing ran. They are few and quick:
// a caller that can wait longer repeats the whole call itself, and says so.
const (
	attempts     = 4
	firstBackoff = 10 * time.Millisecond
)

// refusals are the first words of error replies by which a server says that it
// did not run the command at all. In a script some can only come at its first write
// (READONLY, MISCONF, NOREPLICAS, OOM) or at its first command (MASTERDOWN).
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MOVED", "ASK",
	"NOAUTH", "WRONGPASS", "NOPERM", "NOREPLICAS", "MISCONF", "OOM", "ERR max number of clients",
}

// inScript begin, before Redis 7, what a command in a script was answered, the latter where
// the script returns that itself; the answer comes last.
var inScript = []string{"ERR Error running script ", "@user_script: "}

// inTransaction begins what EXEC is answered when it is refused itself, and nothing of
// the transaction has run.
const inTransaction = "EXECABORT Transaction discarded because of: "

// replyText returns the error reply that err is, without what says where in a script it
// came; "" if it is none.
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

// Reply returns the error reply of the server that err is, "" if it is none.
func Reply(err error) string { return replyText(err) }

// Refusal returns the one of refusals that err is; else "".
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
	// ErrRefused: a script did nothing with a job because a key holds what it should not.
	ErrRefused = errors.New("a key in redis is in the way")
	// ErrNotSent marks what was not sent because something before it failed.
	ErrNotSent = errors.New("not sent")
)

// Once calls do, which sends one mutating command. It is called again only when
// the error proves that the command did not run, because go-redis would repeat
// commands whose reply got lost, and then a script pops two jobs.
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

// Unexecuted reports whether err proves that the command did not run, so that it
// may be sent again without changing anything twice.
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
	// Our scripts check the types of keys before they write.
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
	return !errors.As(err, &op) // a refused connection does not heal within milliseconds
}

// gaveUp adds the error of a context that has ended to that of a server which had not answered by
// then: the library's is only a timeout.
func gaveUp(ctx context.Context, err error) error {
	ended := ctx.Err()
	if until, ok := ctx.Deadline(); ok && ended == nil && !time.Now().Before(until) {
		ended = context.DeadlineExceeded // the connection was faster
	}
	if ended == nil || !Unreachable(err) || errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w: %w", ended, err)
}

// Unreachable reports whether err says that no server answered, in contrast to
// one that answered with an error.
func Unreachable(err error) bool {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) {
		return false
	}
	// The library strips what has ended a new connection of all that says where it comes from.
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return true
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		// A bare errno is one, too, that of a file which cannot be opened for example.
		_, bare := network.(syscall.Errno)
		return !bare
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, errForeign) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// Unauthorized reports whether err says that the server misses a password, or was given
// one that it does not take. Servers before Redis 6 have other words for it.
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

// WrongType reports whether err says that a key holds something of another type
// than it should: no repetition helps until the key is repaired.
func WrongType(err error) bool { return strings.HasPrefix(replyText(err), "RESQUEDTYPE") }
