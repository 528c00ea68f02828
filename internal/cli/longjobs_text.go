package cli

import (
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

// progress is the current step of a run in words, eta how long the rest of it takes.
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
		rate = speed(n)
	}
	if v.ETA != nil {
		eta = longLeft(time.Duration(*v.ETA * float64(time.Second)))
	}
	return text, rate, eta
}

// speed is how many items are done in a second; of slow ones how many in a minute or an hour.
func speed(perSecond float64) string {
	switch {
	case perSecond < 1./60:
		return fmt.Sprintf("%.1f/h", 3600*perSecond)
	case perSecond < 1:
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// longLeft is age in two units: of two hours it matters how many minutes there are.
func longLeft(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute || d >= 48*time.Hour && d%(24*time.Hour) < time.Hour:
		return age(d)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func statusColour(status string) string {
	switch longjob.Status(status) {
	case longjob.Failed:
		return red
	case longjob.Completed:
		return green
	case longjob.Cancelled, longjob.Superseded:
		return yellow
	}
	return ""
}
