package retry

import (
	"crypto/sha1" //nolint:gosec // the name that resque-retry gives the key
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

// Key names the count of a job's attempts, without the namespace, as resque-retry does:
// resque-retry:<class>[:<SHA-1 of the arguments, joined by "-">]. class is the
// registered name; style is how hashes among the arguments are printed.
func Key(class string, args resqued.Args, style wire.RubyStyle) (string, error) {
	joined, err := wire.RubyJoin(args, style)
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
