package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		after       time.Duration
		then, shown string
	}{
		{"nothing", from{}, 0, DrainRequeue, "0s"},
		{"a plain time", from{yaml: "drain_timeout: 50"}, 50 * time.Second, DrainRequeue, "50s,requeue"},
		{"a text", from{yaml: "drain_timeout: 50s, fail"}, 50 * time.Second, DrainFail, "50s,fail"},
		{"a map", from{yaml: "drain_timeout: {after: 2m, then: fail}"}, 2 * time.Minute, DrainFail, "2m,fail"},
		{"a map of the time alone", from{yaml: "drain_timeout: {after: 2m}"}, 2 * time.Minute, DrainRequeue, "2m,requeue"},
		{"the environment over a map", from{yaml: "drain_timeout: {after: 2m, then: fail}", env: "RESQUED_DRAIN_TIMEOUT=7"}, 7 * time.Second, DrainRequeue, "7s,requeue"},
		{"a flag", from{flags: "--drain-timeout 7s,requeue"}, 7 * time.Second, DrainRequeue, "7s,requeue"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tc.mustLoad(t)
			require.Equal(t, tc.after, r.DrainTimeout)
			require.Equal(t, tc.then, r.DrainThen)
			require.Equal(t, tc.shown, r.drainTimeout().show())
		})
	}
}
