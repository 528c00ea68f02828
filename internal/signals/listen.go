package signals

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Listen delivers the signals that Of knows. Nothing may be counted by it and no
// order relied on: the kernel merges equal pending signals and hands out
// different ones by number. Each signal waits in a place of its own until it is received,
// so that none is lost behind others, however many (a SIGCHLD for each orphan). Call stop
// to give the signals back.
//
// A broken standard output must not end the daemon, so SIGPIPE is caught and
// dropped; it is not ignored, because commands would inherit that. SIGTTOU is
// ignored: worker processes sit in process groups of their own, which a terminal
// set to "tostop" takes for background jobs, and a caught SIGTTOU makes the
// kernel restart their write for ever.
func Listen() (sigs <-chan os.Signal, stop func()) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	signal.Ignore(syscall.SIGTTOU)
	all, end := make(chan os.Signal), make(chan struct{})
	var relays sync.WaitGroup
	for _, sig := range []os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGCHLD,
	} {
		one := make(chan os.Signal, 1)
		signal.Notify(one, sig)
		relays.Go(func() {
			defer signal.Stop(one)
			relay(one, all, end)
		})
	}
	return all, func() {
		close(end)
		relays.Wait()
		signal.Stop(pipe)
		signal.Reset(syscall.SIGTTOU)
	}
}

// relay hands on what comes from one until end is closed.
func relay(one <-chan os.Signal, all chan<- os.Signal, end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case sig := <-one:
			select {
			case <-end:
				return
			case all <- sig:
			}
		}
	}
}
