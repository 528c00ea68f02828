package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/locker"
)

// tryFor limits the test of one server.
const tryFor = 15 * time.Second

// connection is the result of a test of something that the configuration names.
type connection struct {
	// Check is "redis connection", "redis rights", "statsd" or "postgres".
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`

	exit int
}

// connect tests every connection that a daemon with this configuration makes.
func (a *cli) connect(c *cobra.Command, r *config.Resolved) []connection {
	all := connectRedis(c.Context(), r)
	if r.StatsdHost != "" {
		all = append(all, connectStatsd(c.Context(), r))
	}
	if a.program().LocksInDatabase(r.Config) {
		all = append(all, connectDatabase(c.Context(), r))
	}
	return all
}

func connectRedis(ctx context.Context, r *config.Resolved) (all []connection) {
	try := func(name string, cfg config.Config, origin string) {
		ctx, cancel := context.WithTimeout(ctx, tryFor)
		defer cancel()
		for _, step := range app.TryRedis(ctx, cfg) {
			one := connection{Check: name + " " + step.Name, OK: step.Err == nil, Detail: step.Detail}
			if step.Err != nil {
				one.Error, one.exit = oneLine(step.Err), exitFailed
				switch {
				case rdb.Unreachable(step.Err):
					one.exit, one.Hint = exitUnreachable, "Start it, or correct redis_url, which is "+origin+"."
				case rdb.Unauthorized(step.Err) && cfg.RedisURL == r.RedisURL:
					one.Hint = "redis_url is " + origin + ". " + passwordHint(r, step.Err)
				}
			}
			all = append(all, one)
		}
	}
	try("redis", r.Config, r.Origin("redis_url"))
	seen := []string{r.RedisURL}
	for _, class := range slices.Sorted(maps.Keys(r.Handlers)) {
		lock := r.Handlers[class].Lock
		if lock == nil || lock.Redis == "" || slices.Contains(seen, lock.Redis) {
			continue
		}
		seen = append(seen, lock.Redis)
		try("lock.redis of "+class, r.At(lock.Redis), "from "+r.Sources["handlers."+class].String())
	}
	return all
}

func connectStatsd(ctx context.Context, r *config.Resolved) connection {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	addr, err := app.TryStatsd(ctx, r.Config)
	if err != nil {
		return connection{
			Check: "statsd", Error: oneLine(err), exit: exitUnreachable,
			Hint: fmt.Sprintf("Start it, or correct statsd_host %s (%s) and statsd_port %d (%s).",
				r.StatsdHost, r.Sources["statsd_host"], r.StatsdPort, r.Sources["statsd_port"]),
		}
	}
	return connection{Check: "statsd", OK: true, Detail: "one datagram sent to " + addr + "; statsd does not answer"}
}

func connectDatabase(ctx context.Context, r *config.Resolved) connection {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	if err := askTable(ctx, r.DatabaseURL); err != nil {
		p := asProblem(err)
		hint := strings.TrimSpace(p.hint + " database_url is " + r.Origin("database_url") + ".")
		return connection{Check: "postgres", Error: oneLine(err), Hint: hint, exit: p.exit}
	}
	return connection{Check: "postgres", OK: true, Detail: "answers, and has the table " + locker.DefaultTable}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (out *output) connectText(all []connection) string {
	var b strings.Builder
	for _, one := range all {
		if one.OK {
			b.WriteString(out.paint(green, "ok") + "    " + one.Check + ": " + one.Detail + "\n")
			continue
		}
		line := strings.TrimRight(one.Error, ".")
		if one.Hint != "" {
			line += ". " + one.Hint
		}
		b.WriteString(out.paint(red, "FAIL") + "  " + one.Check + ": " + line + "\n")
	}
	return b.String()
}

// connectExit returns the verb's error, if any. An unreachable server outweighs a refusal.
func connectExit(all []connection) error {
	worst := exitOK
	for _, one := range all {
		if !one.OK && (worst == exitOK || one.exit == exitUnreachable) {
			worst = one.exit
		}
	}
	if worst == exitOK {
		return nil
	}
	return exitCode(worst)
}
