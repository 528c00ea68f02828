package filter_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector/filter"
)

func TestMask(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                   "",
		"connection refused": "connection refused",
		"user 42 not found":  "user # not found",
		"dial tcp 10.0.0.17:6379: i/o timeout after 1.5s":    "dial tcp #: i/o timeout after #s",
		"at 2026-11-20T09:56:20Z":                            "at #-#-#T#Z",
		"order 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone": "order <id> is gone",
		"blob 9f1c55d0a7b2, ptr 0xc000012345":                "blob <id>, ptr <id>",
		"request 01ARZ3NDEKTSV4RRFFQ69G5FAV":                 "request <id>",
		`no such user "bob@example.com"`:                     `no such user "…"`,
		`bad "a \" b" here`:                                  `bad "…" here`,
		"can't open 'x y' and `z`":                           "can't open '…' and `…`",
		`the quote " is never closed`:                        `the quote " is never closed`,
		"utf8 and face2 and http2/3":                         "utf# and face# and http#/#",
		"decade and facade and deadbeef":                     "decade and facade and deadbeef",
		"mail: exit code 3:\ntrace line\nsmtp 550 no such":   "mail: exit code #: smtp # no such",
		"a\xffb 7":                                             "a�b #",
		"größe 12 überschritten":                               "größe # überschritten",
		"item_type_with_a_long_name_12":                        "item_type_with_a_long_name_#",
		"worker-3 of 1,024: 12%":                               "worker-# of #: #%",
		"x6ba7b810-9dad-11d1-80b4-00c04fd430c8":                "x#ba#b#-#dad-#d#-#b#-<id>",
		strings.Repeat("é", 400):                               strings.Repeat("é", 150) + "…",
		"first line\nsecond " + strings.Repeat("9", 1_000_000): "first line",
	} {
		require.Equal(t, want, filter.Mask(message), "%.80q", message)
	}
}

func FuzzMask(f *testing.F) {
	for _, seed := range []string{"user 42", `"a\"1`, "'", "0x", "1.2.3:", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "a'b'c", "\xff1", "é'1'é", "1:\n2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		masked := filter.Mask(message)
		require.True(t, utf8.ValidString(masked))
		require.LessOrEqual(t, len(masked), 300+len("…"))
		require.NotRegexp(t, `\d`, masked, "a number is left")
		require.Equal(t, masked, filter.Mask(message))
		// Failures that differ in a number only are of one kind.
		require.Equal(t, filter.Mask(message+" 1"), filter.Mask(message+" 23456"))
	})
}
