package cli

import (
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

// progress returns the current step of a run in words, its rate, and the time that its rest
// takes.
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

// speed formats a rate by the second, a low one by the minute or the hour.
func speed(perSecond float64) string {
	switch {
	case perSecond < 1./60:
		return fmt.Sprintf("%.1f/h", 3600*perSecond)
	case perSecond < 1:
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// longLeft formats a duration as age does, but with two units: in 2h50m the minutes matter.
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
	case longjob.StatusFailed:
		return red
	case longjob.StatusCompleted:
		return green
	case longjob.StatusCancelled, longjob.StatusSuperseded:
		return yellow
	}
	return ""
}
