package resqued_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestRequeue(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("not yet: %w", resqued.Requeue(time.Minute))
	var requeue *resqued.RequeueError
	require.ErrorAs(t, err, &requeue)
	require.Equal(t, time.Minute, requeue.After)
	require.EqualError(t, err, "not yet: resqued: requeue after 1m0s")

	require.ErrorAs(t, resqued.Requeue(-time.Second), &requeue)
	require.Zero(t, requeue.After, "a time that is past means at once")
}

func TestDiscardMayBeWrapped(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("%w: no such user", resqued.Discard)
	require.ErrorIs(t, err, resqued.Discard)
	require.NotErrorIs(t, errors.New(err.Error()), resqued.Discard)
}
