// Package signals translates unix signals into what the operator wants. Its tables hold what a
// master or a worker process does about that in each state. Only Listen touches real signals.
//
// docs/signals.md is generated from these tables and checked against them.
package signals

import (
	"os"
	"syscall"
)

// Intent is what a signal asks for, named by its effect.
type Intent string

// The intents. Their text appears in logs and in docs/signals.md.
const (
	None   Intent = ""
	Kill   Intent = "shut down now" // TERM, INT
	Drain  Intent = "drain"         // QUIT
	Abort  Intent = "kill jobs"     // USR1: kill the current jobs, keep running
	Pause  Intent = "pause"         // USR2
	Resume Intent = "resume"        // CONT
	Reload Intent = "reload"        // HUP
	Reap   Intent = "reap"          // CHLD, for the master only
	// Interrupt is INT at a terminal, under resqued dev.
	Interrupt Intent = "drain, again: shut down now"
)

// Of returns the intent of a signal sent to a master or to a worker process.
func Of(sig os.Signal) Intent {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT:
		return Kill
	case syscall.SIGQUIT:
		return Drain
	case syscall.SIGUSR1:
		return Abort
	case syscall.SIGUSR2:
		return Pause
	case syscall.SIGCONT:
		return Resume
	case syscall.SIGHUP:
		return Reload
	case syscall.SIGCHLD:
		return Reap
	default:
		return None
	}
}

// passed are the signals that one master passes on to another.
var passed = map[Intent]os.Signal{
	Kill: syscall.SIGTERM, Drain: syscall.SIGQUIT, Abort: syscall.SIGUSR1, Pause: syscall.SIGUSR2, Resume: syscall.SIGCONT, Reload: syscall.SIGHUP,
}

// For returns the name of the signal that asks for intent, as Named reads it, or "" if a master
// does not pass the intent on by name.
func For(intent Intent) string {
	sig, ok := passed[intent]
	if !ok || intent == Reload {
		return ""
	}
	return Name(sig)
}

// Named returns the signal with a name that Name returned, or nil if a master does not pass it on.
func Named(name string) os.Signal {
	for _, sig := range passed {
		if Name(sig) == name {
			return sig
		}
	}
	return nil
}

// OfDev is Of for a master at a terminal (resqued dev): the first ^C drains, a further one kills.
func OfDev(sig os.Signal) Intent {
	if sig == syscall.SIGINT {
		return Interrupt
	}
	return Of(sig)
}

// Name returns the signal's name with SIG.
func Name(sig os.Signal) string {
	if name := names[sig]; name != "" {
		return name
	}
	return sig.String()
}

var names = map[os.Signal]string{
	syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT",
	syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGCONT: "SIGCONT",
	syscall.SIGHUP: "SIGHUP", syscall.SIGCHLD: "SIGCHLD",
}

// State is a state of a master or of a worker process.
type State string

// The states. A retiring worker process takes no new job because its quota, age or memory is
// used up, and exits when its jobs end. A waiting one is ready, but starts to take jobs only
// when the process that it replaces stops.
const (
	Starting State = "starting"
	Running  State = "running"
	Paused   State = "paused"
	Waiting  State = "waiting"
	Retiring State = "retiring"
	Draining State = "draining"
	Killing  State = "killing"
)
