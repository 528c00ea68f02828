package rdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
)

// TestNoSecretIsShown: wherever a password is in a URL, no message has it.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis://h/0?password=X7X", "redis://X7X@h/zz", "redis://X7X@h/0", "redis://u:X7X@h/0", "redis://:X7X@h/zz", "redis://h/0?pass=X7X&db=zz",
		"redis://h/0?p%61ssword=X7X", "redis-sentinel://h:1/m/zz?sentinel_password=X7X", "redis-sentinel://X7X@h:1/m/zz", "redis://h/0#X7X", "odd://X7X@h",
	} {
		s, err := rdb.Open(rdb.Options{URL: text, Namespace: "resque"})
		if err != nil {
			require.NotContains(t, err.Error(), "X7X", text)
			continue
		}
		require.NotContains(t, s.Where(), "X7X", text)
		require.NoError(t, s.Close())
	}
}
