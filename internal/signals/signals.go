// Package signals translates unix signals into what the operator wants, and
// holds the table of what each state of a master or of a worker process makes
// of it. It is pure: nothing here sends or receives a signal but Listen.
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
	Abort  Intent = "kill jobs"     // USR1: kill the current jobs, go on
	Pause  Intent = "pause"         // USR2
	Resume Intent = "resume"        // CONT
	Reload Intent = "reload"        // HUP
	Reap   Intent = "reap"          // CHLD, the master's own business
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

// For returns the name of a signal that asks for intent, as Named reads it. It is "" for what is
// the business of one process alone.
func For(intent Intent) string {
	sig, ok := passed[intent]
	if !ok || intent == Reload {
		return ""
	}
	return Name(sig)
}

// Named returns the signal of a name that Name has given it, if it is one that a master passes
// on; else nil.
func Named(name string) os.Signal {
	for _, sig := range passed {
		if Name(sig) == name {
			return sig
		}
	}
	return nil
}

// OfDev is Of for a master at a terminal (resqued dev): ^C drains first, and
// kills when it comes again.
func OfDev(sig os.Signal) Intent {
	if sig == syscall.SIGINT {
		return Interrupt
	}
	return Of(sig)
}

// Name is the signal's name as kill knows it, with SIG.
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

// The states. A worker process also retires: it takes no new job because its
// quota, its age or its memory is used up, and leaves when it has finished. And it may
// wait for its turn, ready before the one stops whose place it takes.
const (
	Starting State = "starting"
	Running  State = "running"
	Paused   State = "paused"
	Waiting  State = "waiting"
	Retiring State = "retiring"
	Draining State = "draining"
	Killing  State = "killing"
)
