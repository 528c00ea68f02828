package signals

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Listen delivers the signals that Of knows. Callers must not count them or rely on their
// order: the kernel merges equal pending signals and hands out different ones by number.
// Each signal has its own buffer, so a flood of others (a SIGCHLD for each orphan) does not
// lose it. stop gives the signals back.
//
// A broken standard output must not end the daemon, so SIGPIPE is caught and dropped;
// commands would inherit an ignored one. SIGTTOU is ignored: worker processes have their own
// process groups, which a terminal set to "tostop" takes for background jobs, and a caught
// SIGTTOU makes the kernel restart their write for ever.
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
