package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Age formats a duration in one unit, rounded down: 42s, 4m, 3h, 2d.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Plainly rewords Redis's WRONGTYPE error.
func Plainly(text string) string {
	return strings.ReplaceAll(text, "WRONGTYPE Operation against a key holding the wrong kind of value", "the key holds something else than it should (WRONGTYPE)")
}

// Since formats the age of an instant, "" for the zero time and "<1s" for one in the future.
func Since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Age(max(0, now.Sub(t)))
}

// Left formats a duration as Age does, but in two units: in 2h50m the minutes matter.
func Left(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute || d >= 48*time.Hour && d%(24*time.Hour) < time.Hour:
		return Age(d)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Size formats bytes with a binary unit: 512, 4K, 212M, 1.1G.
func Size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%dM", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%dK", bytes>>10)
	}
	return strconv.FormatInt(bytes, 10)
}

// Rate formats a rate per second, a low one per minute or hour.
func Rate(perSecond float64) string {
	switch {
	case perSecond < 1./60:
		return fmt.Sprintf("%.1f/h", 3600*perSecond)
	case perSecond < 1:
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// Plural counts things: 1 job, 2 jobs.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Grouped writes a count with commas: 1204 as 1,204.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(text) - 3; i > first; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Shell quotes a text as one word of a POSIX shell, so that a command with it is safe to paste:
// any program may choose names. Unprintable text needs the form $'…' of bash, zsh and ksh.
func Shell(text string) string {
	plain, printable := text != "" && text[0] != '-' && text[0] != '~', utf8.ValidString(text)
	for _, r := range text {
		plain = plain && (r >= utf8.RuneSelf || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,~", r))
		printable = printable && unicode.IsPrint(r)
	}
	switch {
	case plain && printable:
		return text
	case printable:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r != utf8.RuneError && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			// Octal escapes end after three digits; hexadecimal ones may swallow another digit.
			for _, c := range []byte(text[:size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		text = text[size:]
	}
	b.WriteByte('\'')
	return b.String()
}
