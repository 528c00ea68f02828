package view_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector/filter"
)

// matching returns a matcher for pairs of a condition and its value.
func matching(t testing.TB, kind filter.Kind, pairs ...string) *filter.Matcher {
	t.Helper()
	words := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		words.Add(pairs[i], pairs[i+1])
	}
	f, err := filter.Parse(words, kind, time.Now())
	require.NoError(t, err)
	m, err := f.Matcher(t.Context(), kind)
	require.NoError(t, err)
	return m
}

func records(t testing.TB, pairs ...string) func(record []byte) bool {
	m := matching(t, filter.Failures, pairs...)
	return func(record []byte) bool {
		_, ok := m.Failure(record)
		return ok
	}
}
