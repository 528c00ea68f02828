package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/rdb"
)

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
