package queueage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history/queueage"
)

func TestPromises(t *testing.T) {
	t.Parallel()
	p := queueage.Promises{{"img_*", time.Hour}, {"within_*", 0}, {"mail", time.Minute}, {"*", 24 * time.Hour}, {"img_now", time.Second}}
	for queue, within := range map[string]time.Duration{
		"mail": time.Minute, "img_a": time.Hour, "img_now": time.Second, "other": 24 * time.Hour,
		"within_30_seconds": 30 * time.Second, "within_1_minute": time.Minute, "within_5m": 5 * time.Minute, "within_2_days": 48 * time.Hour,
		"within_reach": 0, "within_5_parsecs": 0, "within_999999_days": 0,
	} {
		require.Equal(t, within, p.Of(queue), queue)
	}
	require.Zero(t, queueage.Promises(nil).Of("within_1_minute"), "nobody has asked for it")
	require.Equal(t, time.Hour, queueage.InName("mail_within_1_hour"))
}
