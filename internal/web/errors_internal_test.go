package web

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

// TestOthersAreAtIt: concurrent edits of failures are not a fault of the server, and the answer says
// how far the change got.
func TestOthersAreAtIt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{store.ErrFailuresMoved, store.ErrSifting} {
		err = fmt.Errorf("failures of %q: %w", "failed", errors.Join(err, nil))
		e := actError(err)
		require.Equal(t, http.StatusConflict, e.Status)
		require.NotContains(t, e.Hint, "may have been done")
		e = actError(partly(err, 500))
		require.Equal(t, http.StatusConflict, e.Status)
		require.Contains(t, e.Hint, "It was done to 500; the rest is as it was.")
	}
	e := actError(badRequest("no"))
	require.Empty(t, e.Hint)
}
