package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckQueue(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mail", "mail:start", "start_at", "uniqueue", "mail:start_at:x", ""} {
		require.NoError(t, CheckQueue(name), name)
	}
	for _, name := range []string{"mail:start_at", "mail:uniqueue", ":start_at"} {
		require.ErrorContains(t, CheckQueue(name), name)
		require.ErrorContains(t, CheckQueue(name), "choose a name that does not end in :")
	}
}
