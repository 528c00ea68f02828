package workerproc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJobContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	type key struct{}

	t.Run("ended before the first look", func(t *testing.T) {
		t.Parallel()
		c := &jobContext{parent: t.Context()}
		require.NoError(t, c.Err())
		c.end(cause)
		c.end(errors.New("later"))
		require.Equal(t, context.Canceled, c.Err())
		<-c.Done()
		require.Equal(t, context.Canceled, c.Err())
		require.Equal(t, cause, context.Cause(c))
	})
	t.Run("ended during a wait", func(t *testing.T) {
		t.Parallel()
		c := &jobContext{parent: t.Context()}
		child, cancel := context.WithTimeout(c, time.Hour)
		defer cancel()
		require.NoError(t, child.Err())
		go c.end(cause)
		<-child.Done()
		<-c.Done()
		require.Equal(t, cause, context.Cause(child))
		require.Equal(t, cause, context.Cause(c))
		require.Equal(t, context.Canceled, c.Err())
		c.end(nil)
		require.Equal(t, cause, context.Cause(c))
	})
	t.Run("ended without a cause", func(t *testing.T) {
		t.Parallel()
		c := &jobContext{parent: t.Context()}
		c.end(nil)
		require.Equal(t, context.Canceled, context.Cause(c))
	})
	t.Run("ends with its parent", func(t *testing.T) {
		t.Parallel()
		for _, looked := range []bool{false, true} {
			parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
			c := &jobContext{parent: parent}
			if looked {
				require.NoError(t, c.full().Err())
			}
			cancel(cause)
			require.Equal(t, context.Canceled, c.Err())
			require.Equal(t, cause, context.Cause(c))
			require.Equal(t, 7, c.Value(key{}))
		}
	})
	t.Run("has the deadline of its parent", func(t *testing.T) {
		t.Parallel()
		parent, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		want, _ := parent.Deadline()
		got, ok := (&jobContext{parent: parent}).Deadline()
		require.True(t, ok)
		require.Equal(t, want, got)
	})
}
