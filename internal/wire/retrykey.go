package wire

import (
	"crypto/sha1" //nolint:gosec // the name that resque-retry gives the key
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/resqued/resqued"
)

// RetryKey names the count of a job's attempts, without the namespace, as resque-retry does:
// resque-retry:<class>[:<SHA-1 of the arguments, joined by "-">]. class is the
// registered name; style is how hashes among the arguments are printed.
func RetryKey(class string, args resqued.Args, style RubyStyle) (string, error) {
	joined, err := RubyJoin(args, style)
	if err != nil {
		return "", fmt.Errorf("key of the attempts of %s: %w", class, err)
	}
	key := "resque-retry:" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && unicode.IsSpace(r) { // what \s is in Ruby
			return -1
		}
		return r
	}, class)
	if joined == "" {
		return key, nil
	}
	sum := sha1.Sum([]byte(joined)) //nolint:gosec // as above
	return key + ":" + hex.EncodeToString(sum[:]), nil
}

// RetryKeys are all keys under which the attempts of a job may be counted, whatever class
// its payload's name stands for and whichever Ruby's style is in use. They hold no space.
func RetryKeys(e Envelope) []string {
	var keys []string
	add := func(class string, args resqued.Args) {
		for _, name := range ClassNames(class) {
			for _, style := range []RubyStyle{RubyUpTo33, Ruby34} {
				key, err := RetryKey(name, args, style)
				if err == nil && !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	add(e.Class, e.Args)
	if wrapper := e.Wrapper(); wrapper != "" {
		add(wrapper, e.WrapperArgs)
	}
	return keys
}
