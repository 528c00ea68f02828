package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/netresearch/go-cron"
)

// parser reads five fields, or six with seconds first. As in cron, a day matches if either day of
// month or day of week does, when both are given.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.DowOrDom | cron.Extended).WithMaxSearchYears(12)

// everyHour is the bit set of an hour field that leaves no hour out.
const everyHour = 1<<24 - 1

// zoneName matches a zone after the fields, as rufus-scheduler allows it.
var zoneName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+|UTC|GMT|Z)$`)
})

// ParseCron reads a cron expression: five or six fields, a name such as @hourly, or "@every 5m". A
// time zone may follow, or precede it as TZ=. The default is zone, then the machine's zone.
func ParseCron(text, zone string) (Timing, error) {
	fields := strings.Fields(text)
	if len(fields) > 0 {
		for _, prefix := range []string{"TZ=", "CRON_TZ="} {
			if own, ok := strings.CutPrefix(fields[0], prefix); ok {
				fields, zone = fields[1:], strings.Trim(own, `"'`)
				break
			}
		}
	}
	if n := len(fields); n > 1 && zoneName().MatchString(fields[n-1]) {
		fields, zone = fields[:n-1], fields[n-1]
	}
	if len(fields) == 0 {
		return Timing{}, errors.New(`is empty; write five fields, minute first: "0 2 * * *"`)
	}
	if fields[0] == "@every" {
		return ParseEvery(strings.Join(fields[1:], " "), "")
	}
	loc := time.Local
	if zone == "Z" {
		zone = "UTC" // as in RFC 3339; zone databases don't have it
	}
	if zone != "" {
		var err error
		if loc, err = time.LoadLocation(zone); err != nil || zone == "Local" {
			return Timing{}, fmt.Errorf("there is no time zone %q; write one such as Europe/Berlin", zone)
		}
	}
	if n := len(fields); fields[0][0] != '@' && n != 5 && n != 6 {
		return Timing{}, fmt.Errorf("has %s; it takes five (minute, hour, day, month, weekday), or six with the second in front", plural(n, "field"))
	}
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return Timing{}, wrongField(fields, err)
	}
	bits, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Timing{}, fmt.Errorf("%s is not a time", fields[0])
	}
	bits.Location = time.UTC
	t := Timing{spec: &spec{wall: bits, zone: loc, hourly: bits.Hour&everyHour == everyHour}}
	if t.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Timing{}, errors.New("never comes: there is no such date")
	}
	t.print = Fingerprint("cron", strings.Join(fields, " "), rules(loc))
	return t, nil
}

var cronFields = [...]struct{ name, takes string }{
	{"second", "0 to 59"},
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day", "1 to 31"},
	{"month", "1 to 12, or JAN to DEC"},
	{"weekday", "0 to 7, or SUN to SAT"},
}

// wrongField names the field that made the parser refuse an expression.
func wrongField(fields []string, err error) error {
	if fields[0][0] == '@' {
		return fmt.Errorf("%q is not known; write @hourly, @daily, @weekly, @monthly, @yearly or @every 5m", fields[0])
	}
	for i, field := range fields {
		alone := slices.Repeat([]string{"*"}, len(fields))
		alone[i] = field
		if _, wrong := parser.Parse(strings.Join(alone, " ")); wrong != nil {
			f := cronFields[len(cronFields)-len(fields)+i]
			return fmt.Errorf("the %s is %q: write %s, a list (1,2), a range (1-5), steps (*/5) or *", f.name, field, f.takes)
		}
	}
	return err
}

const longest = 366 * 24 * time.Hour

var (
	part  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*`) })
	units = map[string]time.Duration{
		"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
		"sec": time.Second, "min": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
		"second": time.Second, "minute": time.Minute,
	}
)

// ParseEvery reads an interval: 30s, 10m, 1h30m, 2d, 1w, 15 minutes; a bare number is seconds.
// first is the delay of the first tick, or empty.
func ParseEvery(text, first string) (Timing, error) {
	every, err := interval(strings.TrimPrefix(strings.TrimSpace(text), "every "))
	if err != nil {
		return Timing{}, err
	}
	t := Timing{every: every, print: Fingerprint("every", every.String())}
	if first != "" {
		if t.first, err = interval(first); err != nil {
			return Timing{}, fmt.Errorf("first_in %w", err)
		}
	}
	return t, nil
}

func interval(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not an interval; write 30s, 10m, 1h30m, 2d or 1w", text)
	var sum time.Duration
	rest := strings.TrimSpace(text)
	for once := true; once || rest != ""; once = false {
		m := part().FindStringSubmatch(rest)
		if m == nil || len(rest) > 64 {
			return 0, bad
		}
		unit, known := units[m[2]]
		if !known && len(m[2]) > 2 { // "ms" is not a plural
			unit, known = units[strings.TrimSuffix(strings.ToLower(m[2]), "s")]
		}
		n, err := strconv.ParseFloat(m[1], 64)
		switch {
		case !known || err != nil:
			return 0, bad
		case n*float64(unit) > float64(longest) || sum > longest:
			return 0, fmt.Errorf("%q is longer than a year", text)
		}
		sum += time.Duration(n * float64(unit))
		rest = rest[len(m[0]):]
	}
	switch {
	case sum < time.Second || sum%time.Second != 0:
		return 0, fmt.Errorf("%q must be whole seconds, one at least", text)
	case sum > longest:
		return 0, fmt.Errorf("%q is longer than a year", text)
	}
	return sum, nil
}

// rules returns a zone's offsets from 2020 to 2040 and when they change, without its name. Hosts
// whose zone databases differ here would tick at different instants.
func rules(loc *time.Location) string {
	var b strings.Builder
	at, end := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).In(loc), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	_, last := at.Zone()
	fmt.Fprint(&b, last)
	for {
		_, next := bounds(at)
		if next.IsZero() || !next.Before(end) {
			return b.String()
		}
		at = next
		if _, offset := at.Zone(); offset != last { // otherwise only its name changes
			last = offset
			fmt.Fprint(&b, " ", at.Unix(), " ", offset)
		}
	}
}

// Fingerprint returns a short digest of parts.
func Fingerprint(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
