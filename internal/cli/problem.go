package cli

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// Exit codes; docs and scripts rely on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnhealthy   = 3
	exitNotFound    = 4
	exitUnreachable = 69
)

// rightsPage lists what Redis has to allow its user.
const rightsPage = "docs/redis-keys.md"

// problem is an error with advice for the user, and an exit code and a word for scripts.
type problem struct {
	exit int
	// code names the kind of problem in JSON.
	code  string
	lines []string
	hint  string
	cause error
	// redis: the problem is the connection to Redis.
	redis bool
}

func (p *problem) Error() string { return strings.Join(p.lines, "\n") }
func (p *problem) Unwrap() error { return p.cause }

func usage(hint, format string, a ...any) *problem {
	return &problem{exit: exitUsage, code: "usage", lines: []string{fmt.Sprintf(format, a...)}, hint: hint}
}

func failure(code, hint, format string, a ...any) *problem {
	return &problem{exit: exitFailed, code: code, lines: []string{fmt.Sprintf(format, a...)}, hint: hint}
}

// notFound returns the problem of a name that matches nothing, with the nearest known name.
func notFound(kind, name string, known []string, see string) *problem {
	p := failure("not_found", suggestion(name, known, see), "no %s %q", kind, wire.Printable(name, 200))
	p.exit = exitNotFound
	return p
}

// suggestion is the hint for an unknown name.
func suggestion(name string, known []string, see string) string {
	if guess := nearest(name, known); guess != "" {
		return fmt.Sprintf("Did you mean %q?  See: %s", wire.Printable(guess, 200), see)
	}
	return "See: " + see
}

// lookup returns the problem of an unknown or ambiguous name; other errors stay unchanged. see is
// the command that lists names. If c is not nil, its subcommands may have been meant.
func lookup(err error, see string, c *cobra.Command) error {
	if missing, ok := errors.AsType[*view.NotFoundError](err); ok {
		known := slices.Clone(missing.Known)
		if c != nil {
			for _, sub := range c.Commands() {
				known = append(known, sub.Name())
			}
		}
		return notFound(missing.Kind, missing.Name, known, see)
	}
	if several, ok := errors.AsType[*view.AmbiguousError](err); ok {
		return usage("Write more of it.", "%q is the beginning of %s", several.Name, plural(len(several.Matches), several.Kind))
	}
	return err
}

// asProblem returns the exit code and the advice for any error.
func asProblem(err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, devredis.ErrNotRunning):
		return &problem{
			exit: exitUnreachable, code: "unreachable", cause: err,
			lines: []string{err.Error()}, hint: "Start it in another terminal: resqued dev",
		}
	case rdb.Unreachable(err):
		return &problem{
			exit: exitUnreachable, code: "unreachable", cause: err, lines: []string{err.Error()}, redis: true,
			hint: "Start Redis, or say where it is with REDIS_URL or --redis-url. To try resqued without one: resqued dev",
		}
	}
	p = &problem{exit: exitFailed, code: "failed", lines: []string{err.Error()}, cause: err, redis: rdb.Unauthorized(err)}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		p.redis = true
	}
	switch rdb.Refusal(err) {
	case "NOPERM":
		p.redis = true
		if !strings.Contains(p.lines[0], rightsPage) {
			p.hint = "Its user lacks rights: " + rightsPage + " lists those that it needs."
		}
	case "READONLY":
		p.redis, p.hint = true, "That server is a replica: name the primary."
	}
	return p
}

func (a *cli) report(err error) int {
	p := a.explained(asProblem(err))
	if form := a.formOfErrors(); form != "" {
		var body struct {
			Error struct {
				Code    string `json:"code"`
				Message string `json:"message"`
				Hint    string `json:"hint"`
			} `json:"error"`
		}
		body.Error.Code, body.Error.Message, body.Error.Hint = p.code, p.Error(), p.hint
		encode := encodeJSON
		if form == outYAML {
			encode = encodeYAML
		}
		if text, err := encode(body); err == nil {
			_, _ = a.stderr.Write(text)
			return p.exit
		}
	}
	for i, line := range p.lines {
		if i == len(p.lines)-1 && p.hint != "" {
			if !strings.HasSuffix(line, "?") {
				line = strings.TrimRight(line, ".") + "."
			}
			line += " " + p.hint
		}
		_, _ = fmt.Fprintf(a.stderr, "%s: %s\n", a.name, wire.Printable(line, 0))
	}
	return p.exit
}

// maxGuessed is the longest name, in bytes, for which a known one is suggested.
const maxGuessed = 100

// nearest returns the known name that a mistyped one most likely means, or "".
func nearest(name string, known []string) string {
	if len(name) > maxGuessed {
		return ""
	}
	best, limit := "", max(1, min(3, utf8.RuneCountInString(name)/2))
	for _, k := range known {
		if k == name || len(k)-len(name) > limit {
			continue
		}
		if d := config.Distance(strings.ToLower(name), strings.ToLower(k)); d <= limit {
			best, limit = k, d-1
		}
	}
	return best
}

// encodeJSON encodes a value on one line. It escapes everything that a terminal would interpret,
// of which encoding/json escapes only a part.
func encodeJSON(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeControls(b.String(), false), nil
}

// explained adds to a Redis connection problem where the address and the password come from.
func (a *cli) explained(p *problem) *problem {
	r := a.loaded
	if !p.redis || r == nil || a.dev {
		return p
	}
	told := *p
	told.hint = fmt.Sprintf("redis_url is %s, %s.", config.RedactURL(r.RedisURL), r.Origin("redis_url"))
	if rdb.Unauthorized(p.cause) {
		told.hint += " " + passwordHint(r, p.cause)
	} else if p.hint != "" {
		told.hint += " " + p.hint
	}
	return &told
}

func passwordHint(r *config.Resolved, err error) string {
	const set = "name a file with the password (RESQUED_REDIS_PASSWORD_FILE, or redis_password_file in the configuration), or put it into REDIS_URL"
	switch {
	case errors.Is(err, rdb.ErrSentinelPassword):
		return "The sentinels have a password of their own: add ?sentinel_password=… to it, and sentinel_username if they have users."
	case r.RedisPasswordFile != "":
		return fmt.Sprintf("The password is that of %s (%s).", r.RedisPasswordFile, r.Sources["redis_password_file"])
	case config.HasPassword(r.RedisURL):
		return "It holds the password that was refused."
	case len(r.Unread) > 0:
		return fmt.Sprintf("The service may have a password from %s, which root alone can read: run this as root (sudo), or %s.", strings.Join(r.Unread, " or "), set)
	}
	return "No password is given: " + set + "."
}
