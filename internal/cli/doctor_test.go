package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
)

func TestUnitFindings(t *testing.T) {
	t.Parallel()
	const shipped = "Restart=always\nWatchdogUSec=30s\nKillMode=mixed\nKillSignal=3\nId=resqued.service\nLoadState=loaded\nActiveState=active\n"
	for name, c := range map[string]struct {
		text   string
		status []string
		fix    string
	}{
		"no unit":        {"Id=resqued.service\nLoadState=not-found\n", nil, ""},
		"no answer":      {"", nil, ""},
		"as shipped":     {shipped, []string{view.FindingOK}, ""},
		"two of them":    {shipped + "\n" + shipped, []string{view.FindingOK, view.FindingOK}, ""},
		"TERM":           {"KillMode=mixed\nKillSignal=15\nId=a\nLoadState=loaded\n", []string{view.FindingFail}, "KillSignal=SIGQUIT"},
		"control-group":  {"KillMode=control-group\nKillSignal=3\nId=a\nLoadState=loaded\n", []string{view.FindingFail}, "KillMode=mixed"},
		"process":        {"KillMode=process\nKillSignal=3\nId=a\nLoadState=loaded\n", []string{view.FindingFail}, "KillMode=mixed"},
		"not restarted":  {"Restart=no\nKillMode=mixed\nKillSignal=3\nId=a\nLoadState=loaded\n", []string{view.FindingWarn}, "Restart=always"},
		"failed":         {"KillMode=mixed\nKillSignal=3\nId=a\nLoadState=loaded\nActiveState=failed\n", []string{view.FindingFail}, "journalctl"},
		"much at a time": {"Restart=no\nKillMode=none\nKillSignal=9\nId=a\nLoadState=loaded\nActiveState=failed\n", []string{view.FindingFail, view.FindingFail, view.FindingWarn, view.FindingFail}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := unitFindings(c.text)
			var status []string
			for _, f := range found {
				status = append(status, f.Status)
			}
			require.Equal(t, c.status, status)
			if c.fix != "" {
				require.Contains(t, found[0].Fix, c.fix)
			}
		})
	}
}
