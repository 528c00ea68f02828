package workerproc

import "time"

// bell wakes the goroutine that receives from it. Rung twice before that, it wakes it
// once. Any goroutine may ring.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// alarm makes the loop look at its deadlines before the next tick. Any goroutine may
// ring; the loop owns at.
type alarm struct {
	bell
	at time.Time // when it will ring, see wake
}

func newAlarm() *alarm { return &alarm{bell: newBell()} }

// wake rings at that time, if the alarm would not ring before.
func (a *alarm) wake(at time.Time) {
	if now := time.Now(); !a.at.After(now) || at.Before(a.at) {
		a.at = at
		a.after(at.Sub(now))
	}
}

// after rings after d.
func (a *alarm) after(d time.Duration) { time.AfterFunc(d, a.ring) }
