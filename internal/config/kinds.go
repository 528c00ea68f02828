package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/resqued/resqued/internal/locket/jobkey"
)

const (
	// maxDuration keeps sums with the clock far from overflow.
	maxDuration = 366 * 24 * time.Hour
	minInterval = time.Millisecond
	maxInterval = 24 * time.Hour
)

var wholeNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-+]?[0-9]+$`) })

// number is a count from low to high; why explains the bounds.
func number(field func(*Config) *int, low, high int, why string) kind {
	bounds := fmt.Sprintf("must be %d to %d (%s)", low, high, why)
	if high == math.MaxInt32 {
		bounds = fmt.Sprintf("must be %d or more (%s)", low, why)
	}
	return kind{
		hint: "number",
		parse: func(c *Config, text string) error {
			if !wholeNumber().MatchString(text) {
				return errors.New("not a whole number; " + bounds)
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < low || n > high {
				return errors.New(bounds)
			}
			*field(c) = n
			return nil
		},
		show: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

// duration is a time span; check may refuse some.
func duration(field func(*Config) *time.Duration, check func(time.Duration) error) kind {
	return kind{
		hint: "duration",
		parse: func(c *Config, text string) error {
			d, err := ParseDuration(text)
			if err == nil && d > maxDuration {
				err = fmt.Errorf("%w: at most %s", errTooLarge, FormatDuration(maxDuration))
			}
			if err == nil && check != nil {
				err = check(d)
			}
			if err != nil {
				return err
			}
			*field(c) = d
			return nil
		},
		show: func(c *Config) string { return FormatDuration(*field(c)) },
	}
}

func positive(d time.Duration) error {
	if d == 0 {
		return errors.New("must be above 0")
	}
	return nil
}

func wholeSeconds(d time.Duration) error {
	if d == 0 || d%time.Second != 0 {
		return errors.New("must be whole seconds above 0, because Redis expires locks by the second")
	}
	return nil
}

func zeroOr(least time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if d > 0 && d < least {
			return fmt.Errorf("must be 0 (no limit) or at least %s", FormatDuration(least))
		}
		return nil
	}
}

func interval(d time.Duration) error {
	if d > 0 && d < minInterval || d > maxInterval {
		return fmt.Errorf("must be %s to %s, or 0 to leave when every queue is empty",
			FormatDuration(minInterval), FormatDuration(maxInterval))
	}
	return nil
}

// size is a number of bytes; check may refuse some.
func size(field func(*Config) *int64, check func(int64) error) kind {
	return kind{
		hint: "size",
		parse: func(c *Config, text string) error {
			n, err := ParseSize(text)
			if err == nil && check != nil {
				err = check(n)
			}
			if err != nil {
				return err
			}
			*field(c) = n
			return nil
		},
		show: func(c *Config) string { return FormatSize(*field(c)) },
	}
}

func rss() kind {
	return size(func(c *Config) *int64 { return &c.MaxRSS }, func(n int64) error {
		if n > 0 && n < minRSS {
			return fmt.Errorf("must be 0 (no limit) or at least %s, or every process is replaced as soon as it starts;"+
				" a number without a unit is bytes", FormatSize(minRSS))
		}
		return nil
	})
}

// rssOrAuto is rss, or a size that depends on where the daemon runs.
func rssOrAuto() kind {
	k := rss()
	parse, show := k.parse, k.show
	k.hint = "size|" + rssAuto
	k.parse = func(c *Config, text string) error {
		if text == rssAuto {
			c.MaxRSS = RSSAuto
			return nil
		}
		return parse(c, text)
	}
	k.show = func(c *Config) string {
		if c.MaxRSS == RSSAuto {
			return rssAuto
		}
		return show(c)
	}
	return k
}

func text(field func(*Config) *string) kind {
	return kind{
		hint: "text",
		parse: func(c *Config, text string) error {
			if err := printable(text); err != nil {
				return err
			}
			*field(c) = text
			return nil
		},
		show: func(c *Config) string { return *field(c) },
	}
}

// host is a server's name or address, or empty. port is the key of its port.
func host(field func(*Config) *string, port string) kind {
	k := text(field)
	parse := k.parse
	k.hint = "host"
	k.parse = func(c *Config, text string) error {
		if err := checkHost(text, port); err != nil {
			return err
		}
		return parse(c, text)
	}
	return k
}

func checkHost(text, port string) error {
	if _, err := netip.ParseAddr(text); err == nil || text == "" {
		return nil
	}
	name := text
	if _, rest, found := strings.Cut(text, "://"); found {
		name, _, _ = strings.Cut(rest, "/")
	}
	if bare, number, err := net.SplitHostPort(name); err == nil {
		return fmt.Errorf("must be a host alone; write %q, and %s: %s", bare, port, number)
	}
	if bare, found := strings.CutPrefix(strings.TrimSuffix(name, "]"), "["); found {
		name = bare
	}
	switch {
	case name == "" || strings.HasPrefix(text, "/"):
		return errors.New("must be a host, such as 127.0.0.1 or statsd.example.com; what is sent goes over UDP")
	case name != text:
		return fmt.Errorf("must be a host alone; write %q", name)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",;/@?#[]:", r) }):
		return errors.New("must be one host, such as 127.0.0.1 or statsd.example.com")
	}
	return nil
}

func zeroOrPayload(n int64) error {
	if n > 0 && n < minPayload {
		return fmt.Errorf("must be 0 (no limit) or at least %s; a number without a unit is bytes", FormatSize(minPayload))
	}
	return nil
}

func printable(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("must not hold control characters")
	}
	return nil
}

func lockKey() kind {
	k := text(func(c *Config) *string { return &c.JobLockKey })
	parse := k.parse
	k.hint = "style"
	k.parse = func(c *Config, text string) error {
		if jobkey.IsTemplate(text) {
			if _, err := jobkey.ParseTemplate(text); err != nil {
				return err
			}
		} else if !slices.Contains(jobkey.Styles, text) {
			return fmt.Errorf("not known, one of %s, or a template such as {{class}}:{{args.0}}", strings.Join(jobkey.Styles, ", "))
		}
		return parse(c, text)
	}
	return k
}

func namespace() kind {
	k := text(func(c *Config) *string { return &c.Namespace })
	parse := k.parse
	k.parse = func(c *Config, text string) error {
		switch {
		case text == "":
			return errors.New(`must not be empty; Resque's own is "resque"`)
		case strings.ContainsFunc(text, unicode.IsSpace):
			return errors.New("must not hold spaces")
		case strings.HasSuffix(text, ":"):
			return fmt.Errorf("must not end with a colon, one is added; write %q", strings.TrimRight(text, ":"))
		}
		return parse(c, text)
	}
	return k
}

func oneOf(field func(*Config) *string, words ...string) kind {
	return kind{
		hint: strings.Join(words, "|"),
		parse: func(c *Config, text string) error {
			if !slices.Contains(words, text) {
				return errors.New("not known, one of " + strings.Join(words, ", "))
			}
			*field(c) = text
			return nil
		},
		show: func(c *Config) string { return *field(c) },
	}
}

// hintBool is the hint of flags that need no value.
const hintBool = "bool"

func boolean(field func(*Config) *bool) kind {
	return kind{
		hint: hintBool,
		parse: func(c *Config, text string) error {
			yes, err := parseBool(text)
			if err != nil {
				return err
			}
			*field(c) = yes
			return nil
		},
		show: func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

// waker is a boolean, or auto.
func waker() kind {
	k := oneOf(func(c *Config) *string { return &c.Waker }, WakerAuto, WakerOn, WakerOff)
	k.parse = func(c *Config, text string) error {
		if strings.EqualFold(text, WakerAuto) {
			c.Waker = WakerAuto
			return nil
		}
		yes, err := parseBool(text)
		if err != nil {
			return errors.New("write auto, on or off")
		}
		c.Waker = WakerOff
		if yes {
			c.Waker = WakerOn
		}
		return nil
	}
	return k
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, errors.New("write true or false")
}

func redisURL() kind {
	return kind{
		hint: "URL",
		parse: func(c *Config, text string) error {
			if err := checkRedisURL(text); err != nil {
				return err
			}
			c.RedisURL = text
			return nil
		},
		show: func(c *Config) string { return redactURL(c.RedisURL) },
	}
}
