package app

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Signals during the wait for Redis reach the master, including one that ends a pause.
func TestSignalsWhileStarting(t *testing.T) {
	t.Parallel()
	received := make(chan os.Signal)
	r := newRelay(received, false)
	defer r.stop()
	want := []os.Signal{syscall.SIGUSR2, syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGCONT}
	stopped, err := whileStarting(t.Context(), "redis", r, zap.NewNop(), func(context.Context) error {
		for _, sig := range want {
			received <- sig
		}
		return nil
	})
	require.NoError(t, err)
	require.False(t, stopped)
	for _, sig := range want {
		require.Equal(t, sig, <-r.out)
	}
}
