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

// RetryKey names the count of a job's attempts as resque-retry does, without the namespace:
// resque-retry:<class>[:<SHA-1 of the arguments, joined by "-">]. class is the registered name;
// style is how hashes in the arguments are printed.
func RetryKey(class string, args resqued.Args, style RubyStyle) (string, error) {
	joined, err := RubyJoin(args, style)
	if err != nil {
		return "", fmt.Errorf("key of the attempts of %s: %w", class, err)
	}
	key := "resque-retry:" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && unicode.IsSpace(r) { // Ruby's \s
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

// RetryKeys returns all keys under which a job's attempts may be counted: for every resolution of its
// class name and every Ruby style. They contain no spaces.
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
