package mysqltest_test

import (
	"database/sql"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestStart(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	s, err := mysqltest.Launch(t.Context(), mysqltest.Options{Settings: []string{"sort_buffer_size=70000"}})
	if errors.Is(err, mysqltest.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Stop)

	t.Run("it answers, with the settings asked for", func(t *testing.T) {
		db, err := sql.Open("mysql", s.DSN(""))
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		var text string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT CONCAT_WS(' ', @@sort_buffer_size, @@innodb_flush_log_at_trx_commit, @@skip_networking, DATABASE())").Scan(&text))
		require.Equal(t, "70000 0 ON test", text)
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
