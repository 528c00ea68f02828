package classlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	told := 0
	claim := classlock.NewClaim("p", "1", func() { told++ })
	claim.Update(func(s *classlock.ClaimState) { s.Held = true })
	require.Zero(t, told)
	claim.Update(func(s *classlock.ClaimState) { s.Lost = resqued.ErrLockLost })
	require.Equal(t, 1, told, "the loop has to know at once")
	claim.Update(func(s *classlock.ClaimState) { s.Grace = time.Second })
	require.Equal(t, 1, told)
	require.Equal(t, classlock.ClaimState{Held: true, Lost: resqued.ErrLockLost, Grace: time.Second}, claim.State())
}
