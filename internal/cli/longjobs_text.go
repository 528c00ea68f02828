package cli

import (
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

// progress returns a run's current step in words, its rate, and the remaining time.
func progress(v *view.LongJob) (text, rate, eta string) {
	step, ok := v.Step()
	if !ok {
		return "", "", ""
	}
	text = fmt.Sprintf("%s %d", step.Name, step.Done)
	if step.Total > 0 {
		text += fmt.Sprintf("/%d", step.Total)
	}
	if n := step.PerSecond(); n > 0 {
		rate = view.Rate(n)
	}
	if v.ETA != nil {
		eta = view.Left(time.Duration(*v.ETA * float64(time.Second)))
	}
	return text, rate, eta
}

func statusColour(status string) string {
	switch longjob.Status(status) {
	case longjob.StatusFailed:
		return red
	case longjob.StatusCompleted:
		return green
	case longjob.StatusPaused, longjob.StatusCancelled, longjob.StatusSuperseded:
		return yellow
	}
	return ""
}
