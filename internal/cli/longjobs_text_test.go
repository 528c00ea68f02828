package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	done := longjob.Step{Name: "plan", Done: 1, Total: 1, Milliseconds: 900, Finished: true}
	middle := longjob.Step{Name: "send", Done: 100, Total: 400, Milliseconds: 50000}
	for name, tc := range map[string]struct {
		run             longjob.Run
		text, rate, eta string
	}{
		"no step":                  {run: longjob.Run{Status: longjob.StatusRunning}},
		"in the middle":            {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{done, middle}}, text: "send 100/400", rate: "2.0/s", eta: "2m30s"},
		"between two slices":       {run: longjob.Run{Status: longjob.StatusQueued, Steps: []longjob.Step{done, middle}}, text: "send 100/400", rate: "2.0/s", eta: "2m30s"},
		"between two steps":        {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{done}}, text: "plan 1/1", rate: "1.1/s"},
		"a step not yet begun":     {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{done, {Name: "send", Total: 400}}}, text: "send 0/400"},
		"a finished step behind":   {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{middle, done}}, text: "send 100/400", rate: "2.0/s", eta: "2m30s"},
		"no total":                 {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{{Name: "rows", Done: 7, Milliseconds: 70}}}, text: "rows 7", rate: "100.0/s"},
		"slow":                     {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{{Name: "shops", Done: 1, Total: 3, Milliseconds: 3600_000}}}, text: "shops 1/3", rate: "1.0/h", eta: "2h00m"},
		"slower than one a second": {run: longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{{Name: "shops", Done: 1, Total: 3, Milliseconds: 10000}}}, text: "shops 1/3", rate: "6.0/min", eta: "20s"},
		"failed":                   {run: longjob.Run{Status: longjob.StatusFailed, Steps: []longjob.Step{middle}}, text: "send 100/400", rate: "2.0/s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := view.NewLongJob(t.Context(), tc.run)
			text, rate, eta := progress(&v)
			require.Equal(t, []string{tc.text, tc.rate, tc.eta}, []string{text, rate, eta})
		})
	}
}

func TestLongLeft(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		200 * time.Millisecond:                     "<1s",
		59 * time.Second:                           "59s",
		119600 * time.Millisecond:                  "2m00s",
		time.Hour + 59*time.Minute + 5*time.Second: "1h59m",
		47*time.Hour + 59*time.Minute:              "47h59m",
		48 * time.Hour:                             "2d",
		75*time.Hour + 20*time.Minute:              "3d03h",
	} {
		require.Equal(t, want, view.Left(d))
	}
}
