package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// Listen delivers the signals that Of knows. Nothing may be counted by it and no
// order relied on: the kernel merges equal pending signals and hands out
// different ones by number. Call stop to give the signals back.
//
// A broken standard output must not end the daemon, so SIGPIPE is caught and
// dropped; it is not ignored, because commands would inherit that. SIGTTOU is
// ignored: worker processes sit in process groups of their own, which a terminal
// set to "tostop" takes for background jobs, and a caught SIGTTOU makes the
// kernel restart their write for ever.
func Listen() (sigs <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 64)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGCHLD)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	signal.Ignore(syscall.SIGTTOU)
	return c, func() {
		signal.Stop(c)
		signal.Stop(pipe)
		signal.Reset(syscall.SIGTTOU)
	}
}
