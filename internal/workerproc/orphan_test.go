package workerproc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/workerproc"
)

// Where jobs die with their master, the next master decides their outcome. They were not told
// to stop, so none of them has failed.
func TestJobsDieWithTheirMaster(t *testing.T) {
	t.Parallel()
	h, running, _ := gate()
	f := start(t, handlers{"A": h}, options{
		short: true, cfg: workerproc.Config{Threads: 2, KillOnMasterDeath: true},
	})
	f.push(payload(1), payload(2), payload(3))
	<-running
	<-running
	f.die()
	select {
	case <-f.exited:
	case <-time.After(patience):
		require.Fail(t, "the process stays")
	}
	require.Empty(t, f.failed())
	require.Zero(t, f.recorded)
	require.Equal(t, 1, f.waiting())
	require.EqualValues(t, 2, f.redis.HLen(t.Context(), f.key("resqued:inflight:h:boot:1-1:0.1")).Val())
}

func TestTheMasterDiesBeforeItHearsThatAProcessIsReady(t *testing.T) {
	t.Parallel()
	start(t, handlers{}, options{deaf: true, noReady: true}).ends()
}
