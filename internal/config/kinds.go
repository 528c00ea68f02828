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

// kind reads and shows a value of some type.
type kind struct {
	// hint is the value's placeholder in the help.
	hint string
	list bool
	// parse gets trimmed text; its error says what to write.
	parse func(text string) error
	show  func() string
	// fields, if not nil, turns a map of the file into text for parse.
	fields func(f *file, from field) (text string, ok bool)
}

// kindOf is the kind of *to, which read sets and write shows.
func kindOf[T any](hint string, to *T, read func(text string) (T, error), write func(T) string) kind {
	return kind{
		hint: hint,
		parse: func(text string) error {
			value, err := read(text)
			if err == nil {
				*to = value
			}
			return err
		},
		show: func() string { return write(*to) },
	}
}

// okay reads any text that check accepts.
func okay(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

func anything(string) error { return nil }

// number is a count from low to high; why explains the bounds.
func number(to *int, low, high int, why string) kind {
	bounds := fmt.Sprintf("must be %d to %d (%s)", low, high, why)
	if high == math.MaxInt32 {
		bounds = fmt.Sprintf("must be %d or more (%s)", low, why)
	}
	return kindOf("number", to, func(text string) (int, error) {
		if !wholeNumber().MatchString(text) {
			return 0, errors.New("not a whole number; " + bounds)
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, errors.New(bounds)
		}
		return n, nil
	}, strconv.Itoa)
}

// duration is a time span; check may refuse some.
func duration(to *time.Duration, check func(time.Duration) error) kind {
	return kindOf("duration", to, func(text string) (time.Duration, error) {
		d, err := ParseDuration(text)
		if err == nil && d > maxDuration {
			err = fmt.Errorf("%w: at most %s", errTooLarge, FormatDuration(maxDuration))
		}
		if err == nil && check != nil {
			err = check(d)
		}
		return d, err
	}, FormatDuration)
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
func size(to *int64, check func(int64) error) kind {
	return kindOf("size", to, func(text string) (int64, error) {
		n, err := ParseSize(text)
		if err == nil {
			err = check(n)
		}
		return n, err
	}, FormatSize)
}

func checkRSS(n int64) error {
	if n > 0 && n < minRSS {
		return fmt.Errorf("must be 0 (no limit) or at least %s, or every process is replaced as soon as it starts;"+
			" a number without a unit is bytes", FormatSize(minRSS))
	}
	return nil
}

// rssOrAuto is a size, or one that depends on where the daemon runs.
func rssOrAuto(to *int64) kind {
	k := size(to, checkRSS)
	parse, show := k.parse, k.show
	k.hint = "size|" + rssAuto
	k.parse = func(text string) error {
		if text == rssAuto {
			*to = RSSAuto
			return nil
		}
		return parse(text)
	}
	k.show = func() string {
		if *to == RSSAuto {
			return rssAuto
		}
		return show()
	}
	return k
}

func text(to *string) kind { return checked("text", to, printable) }

func checked(hint string, to *string, check func(string) error) kind {
	return kindOf(hint, to, okay(check), func(s string) string { return s })
}

// list is a list whose entries the loader checks.
func list(to *[]string) kind {
	return kind{hint: "list", list: true, show: func() string { return strings.Join(*to, ",") }}
}

// checkHost takes a server's name or address, or none.
func checkHost(text string) error {
	if _, err := netip.ParseAddr(text); err == nil || text == "" {
		return printable(text)
	}
	name := text
	if _, rest, found := strings.Cut(text, "://"); found {
		name, _, _ = strings.Cut(rest, "/")
	}
	if bare, number, err := net.SplitHostPort(name); err == nil {
		return fmt.Errorf("must be a host alone; write %q, and statsd_port: %s", bare, number)
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
	return printable(text)
}

func checkPayload(n int64) error {
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

func checkJobLockKey(text string) error {
	if jobkey.IsTemplate(text) {
		if _, err := jobkey.ParseTemplate(text); err != nil {
			return err
		}
	} else if !slices.Contains(jobkey.Styles, text) {
		return fmt.Errorf("not known, one of %s, or a template such as {{class}}:{{args.0}}", strings.Join(jobkey.Styles, ", "))
	}
	return printable(text)
}

func checkNamespace(text string) error {
	switch {
	case text == "":
		return errors.New(`must not be empty; Resque's own is "resque"`)
	case strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("must not hold spaces")
	case strings.HasSuffix(text, ":"):
		return fmt.Errorf("must not end with a colon, one is added; write %q", strings.TrimRight(text, ":"))
	}
	return printable(text)
}

func oneOf(to *string, words ...string) kind {
	return checked(strings.Join(words, "|"), to, among(words))
}

// among refuses all but some words.
func among(words []string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return errors.New("not known, one of " + strings.Join(words, ", "))
		}
		return nil
	}
}

// hintBool is the hint of flags that need no value.
const hintBool = "bool"

func boolean(to *bool) kind { return kindOf(hintBool, to, parseBool, strconv.FormatBool) }

// waker is a boolean, or auto.
func waker(to *string) kind {
	k := oneOf(to, WakerAuto, WakerOn, WakerOff)
	k.parse = func(text string) error {
		yes, err := parseBool(text)
		switch {
		case strings.EqualFold(text, WakerAuto):
			*to = WakerAuto
		case err != nil:
			return errors.New("write auto, on or off")
		case yes:
			*to = WakerOn
		default:
			*to = WakerOff
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
