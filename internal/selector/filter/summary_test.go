package filter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector/filter"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "one": "one", "one\ntwo": "one",
		"python3: exit code 1:\nTraceback (most recent call last):\n  File \"a.py\"\nValueError: no\n": "python3: exit code 1: ValueError: no",
		"sh: exit code 1: one line": "sh: exit code 1: one line",
		"nothing follows:":          "nothing follows:",
	} {
		require.Equal(t, want, filter.Summary(text))
	}
}
