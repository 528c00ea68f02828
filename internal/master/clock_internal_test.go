package master

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestClockOfRedis(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.ErrorLevel)
	log, start := zap.New(core), time.Unix(1_800_000_000, 0)
	var c clock
	said := func(now time.Duration, asked, answered time.Duration) string {
		c.see(log, start.Add(now), asked, answered)
		entries := logs.TakeAll()
		if len(entries) == 0 {
			return ""
		}
		require.Len(t, entries, 1)
		return entries[0].Message[:len("redis's clock was set back")] + " " + entries[0].ContextMap()["by"].(time.Duration).String()
	}
	require.Empty(t, said(0, time.Second, time.Second), "the first time that it is seen")
	require.Empty(t, said(5*time.Second, 6*time.Second, 6*time.Second))
	require.Empty(t, said(time.Minute, 30*time.Second, 90*time.Second), "the answer has taken a minute")
	require.Empty(t, said(2*time.Minute, 150*time.Second, 150*time.Second))
	require.Equal(t, "redis's clock was set forw 1h0m0s", said(time.Hour+3*time.Minute, 210*time.Second, 210*time.Second))
	require.Empty(t, said(time.Hour+4*time.Minute, 270*time.Second, 270*time.Second))
	require.Equal(t, "redis's clock was set back 1h0m0s", said(5*time.Minute, 330*time.Second, 330*time.Second))
	c.see(log, time.Time{}, 0, 0)
	require.Empty(t, said(0, time.Second, time.Second), "after an answer without a time")
}
