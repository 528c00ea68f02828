package pgtest_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestStart(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	s, err := pgtest.Launch(t.Context(), pgtest.Options{Settings: []string{"work_mem=7MB"}})
	if errors.Is(err, pgtest.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Stop)

	t.Run("it answers, with the settings asked for", func(t *testing.T) {
		psql, err := exec.LookPath("psql")
		if err != nil {
			t.Skip("psql is not on PATH")
		}
		out, err := exec.CommandContext(t.Context(), psql, s.URL(""), "-Atc", "select current_setting('fsync'), current_setting('work_mem'), current_user").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, "off|7MB|postgres\n", string(out))
	})
	t.Run("it is not root's", func(t *testing.T) {
		info, err := os.Stat("/proc/" + strconv.Itoa(s.PID()))
		require.NoError(t, err)
		require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
	})
	t.Run("it starts again after a crash", func(t *testing.T) {
		before := s.PID()
		require.NoError(t, s.Restart(t.Context()))
		require.NotEqual(t, before, s.PID())
		require.ErrorIs(t, syscall.Kill(before, 0), syscall.ESRCH)
	})
	t.Run("nothing is left of it", func(t *testing.T) {
		pid, dir := s.PID(), s.Dir()
		s.Stop()
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		require.NoDirExists(t, dir)
	})
}
