package config

import (
	"errors"
	"math/big"
	"regexp"
	"strings"
	"sync"
	"time"
)

// maxValue limits the text of a number, in bytes.
const maxValue = 64

var (
	bareNumber   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)$`) })
	durationForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w))+$`)
	})
	durationPart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([0-9.]+)([a-zµμ]+)`) })
	sizeForm     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([-+]?)([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`) })
)

// spans are the units of durations. A day is always 24 hours.
var spans = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// units are the units of sizes. A single letter is a power of 1024, as in systemd's unit files.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ErrNoDuration is ParseDuration's error for a text that is not a duration at all.
var ErrNoDuration = errors.New("not a duration; write seconds (30, 0.5) or numbers with units (500ms, 30s, 1h30m, 7d, 2w)")

var (
	errNegative    = errors.New("must not be negative")
	errTooLarge    = errors.New("too large")
	errNoSize      = errors.New("not a size; write bytes (4096) or a number with a unit (512MB, 1GiB, 1G)")
	errPartialByte = errors.New("not a whole number of bytes; add a unit (512MB, 1GiB, 1G)")
)

// ParseDuration reads a duration: seconds, perhaps fractional, or time.ParseDuration's format with
// days and weeks (d, w) in addition. Negative ones are refused.
func ParseDuration(text string) (time.Duration, error) {
	s := strings.TrimSpace(text)
	if len(s) > maxValue {
		return 0, ErrNoDuration
	}
	if bareNumber().MatchString(s) {
		s += "s"
	}
	if !durationForm().MatchString(s) {
		return 0, ErrNoDuration
	}
	sum := new(big.Rat)
	for _, part := range durationPart().FindAllStringSubmatch(s, -1) {
		number, ok := new(big.Rat).SetString(part[1])
		if !ok {
			return 0, ErrNoDuration
		}
		sum.Add(sum, number.Mul(number, new(big.Rat).SetInt64(int64(spans[part[2]]))))
	}
	if s[0] == '-' && sum.Sign() != 0 {
		return 0, errNegative
	}
	whole := new(big.Int).Quo(sum.Num(), sum.Denom())
	if !whole.IsInt64() {
		return 0, errTooLarge
	}
	return time.Duration(whole.Int64()), nil
}

// ParseSize reads a size in bytes: a whole number, or a number with a unit in any case. KB, MB, GB
// and TB are powers of 1000; KiB, MiB, GiB, TiB and K, M, G, T of 1024.
func ParseSize(text string) (int64, error) {
	s := strings.TrimSpace(text)
	m := sizeForm().FindStringSubmatch(s)
	if m == nil || len(s) > maxValue {
		return 0, errNoSize
	}
	unit, ok := units[strings.ToLower(m[3])]
	number, valid := new(big.Rat).SetString(m[2])
	if !ok || !valid {
		return 0, errNoSize
	}
	if m[1] == "-" && number.Sign() != 0 {
		return 0, errNegative
	}
	if unit == 1 && !number.IsInt() {
		return 0, errPartialByte
	}
	number.Mul(number, new(big.Rat).SetInt64(unit))
	bytes := new(big.Int).Quo(number.Num(), number.Denom())
	if !bytes.IsInt64() {
		return 0, errTooLarge
	}
	return bytes.Int64(), nil
}

// FormatDuration writes a duration without empty parts: "2m", not "2m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// FormatSize writes a size in the largest unit that divides it: "1GiB", "512MB".
func FormatSize(n int64) string {
	for _, unit := range []string{"TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"} {
		if by := units[strings.ToLower(unit)]; n >= by && n%by == 0 {
			return big.NewInt(n/by).String() + unit
		}
	}
	return big.NewInt(n).String()
}
