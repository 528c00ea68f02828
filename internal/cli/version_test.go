package cli

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	var b buildInfo
	b.fromVCS([]debug.BuildSetting{
		{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "133ba666"},
		{Key: "vcs.time", Value: "2026-11-25T20:37:47Z"},
		{Key: "vcs.modified", Value: "true"},
	})
	require.Equal(t, buildInfo{Commit: "133ba666", Date: "2026-11-25T20:37:47Z", Modified: true}, b)
}
