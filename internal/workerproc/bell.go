package workerproc

import "time"

// bell wakes the goroutine that receives from it. Several rings before that wake it once. Any
// goroutine may ring.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// alarm makes the loop check its deadlines before the next tick. Any goroutine may ring; the
// loop owns at.
type alarm struct {
	bell
	at time.Time // when wake rings next
}

func newAlarm() *alarm { return &alarm{bell: newBell()} }

// wake rings at that time, unless the alarm rings earlier.
func (a *alarm) wake(at time.Time) {
	if now := time.Now(); !a.at.After(now) || at.Before(a.at) {
		a.at = at
		a.after(at.Sub(now))
	}
}

func (a *alarm) after(d time.Duration) { time.AfterFunc(d, a.ring) }
