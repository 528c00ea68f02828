package top

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stops is how long a stop is waited for that ^Z has asked for: the kernel stops no program that
// no shell looks after.
const stops = 200 * time.Millisecond

// listen receives the signals that concern the terminal. SIGTSTP is not among them: once it was
// received its default effect, which suspend needs, would not come back.
func (l *loop) listen() {
	signal.Notify(l.signals, syscall.SIGWINCH, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGCONT)
}

// signal does what a signal means, and reports whether that is the end.
func (l *loop) signal(s os.Signal) (end bool) {
	switch s {
	case syscall.SIGWINCH: // draw asks for the size
	case syscall.SIGCONT: // after a stop by another program, of which nothing was seen
		l.terminal.leave()
		_ = l.terminal.enter()
	default:
		return true
	}
	return false
}

// suspend gives the terminal back, stops the program and what runs with it, and takes the
// terminal again when it goes on. It reports whether a signal has asked for the end meanwhile.
func (l *loop) suspend() (end bool) {
	l.terminal.leave()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	for limit := time.After(stops); ; {
		select {
		case s := <-l.signals:
			switch s {
			case syscall.SIGCONT:
			case syscall.SIGWINCH:
				continue
			default:
				return true
			}
		case <-limit:
		}
		return l.terminal.enter() != nil
	}
}
