package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// Exit codes for a command that could not be started, as in shells.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// guardLooks is how often a guard reads the clock: timers stop while the machine is suspended.
const guardLooks = 20 * time.Millisecond

// leaseTerms returns the line that tells a guard when to send TERM and KILL, in procfs.BootTime.
func leaseTerms(stop, kill time.Duration) string { return fmt.Sprintf("lease %d %d", stop, kill) }

// guard is the process between this one and the command. It ends the command in time if this
// process cannot, because it was killed or stopped.
type guard struct {
	cmd   *exec.Cmd
	words *os.File
	// spared are children that this process had before.
	spared map[procfs.ID]bool
	// started is closed when the command has started, gone when guard and command are gone.
	started, gone chan struct{}

	// lost is written before gone is closed.
	lost bool
}

// atTerminal reports whether a standard stream is the session's controlling terminal.
func atTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	return false
}

// startGuard starts the guard, which starts the command in this process's group or in a new one.
func startGuard(command, environ []string, terms string, sameGroup bool) (*guard, error) {
	// If the guard is killed, the command and its children become children of this process.
	if err := procfs.Subreaper(); err != nil {
		return nil, err
	}
	before, err := procfs.Descendants(nil)
	if err != nil {
		return nil, err
	}
	hear, words, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = hear.Close() }()
	answers, say, err := os.Pipe()
	if err != nil {
		_ = words.Close()
		return nil, err
	}
	defer func() { _ = say.Close() }()
	g := &guard{words: words, spared: map[procfs.ID]bool{}, started: make(chan struct{}), gone: make(chan struct{})}
	for _, p := range before {
		g.spared[p.ID] = true
	}
	// The running file, even if it was replaced.
	program, err := proc.Executable()
	if err != nil {
		return nil, err
	}
	g.cmd = exec.Command(program)
	g.cmd.Args = []string{os.Args[0], "locker", "guard"}
	if sameGroup {
		g.cmd.Args = append(g.cmd.Args, "--group", strconv.Itoa(unix.Getpgrp()))
	}
	g.cmd.Args = append(append(g.cmd.Args, "--"), command...)
	g.cmd.Env = environ
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.ExtraFiles = []*os.File{hear, say}
	// Keep signals of a terminal to this process's group away from the guard.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		_ = words.Close()
		_ = answers.Close()
		return nil, err
	}
	g.tell(terms)
	go g.listen(answers)
	return g, nil
}

// tell sends a line. It ignores errors: listen notices a dead guard.
func (g *guard) tell(line string) { _, _ = fmt.Fprintln(g.words, line) }

// listen reads the guard's lines until guard and command are gone.
func (g *guard) listen(answers *os.File) {
	defer close(g.gone)
	defer answers.Close()
	lines := bufio.NewScanner(answers)
	for lines.Scan() {
		switch lines.Text() {
		case "started":
			close(g.started)
		case "lost":
			g.lost = true
		}
	}
	_ = g.cmd.Wait()
	if g.cmd.ProcessState.ExitCode() < 0 { // the guard was killed
		endBelow(g.spared)
		g.lost = true
	}
	_ = g.words.Close()
}

func (g *guard) hasStarted() bool {
	select {
	case <-g.started:
		return true
	default:
		return false
	}
}

// kill ends a guard that does not do its work; its command dies with it.
func (g *guard) kill() { _ = g.cmd.Process.Kill() }

// result says how the command ended. gone must be closed.
func (g *guard) result() (lost bool, code int) { return g.lost, g.cmd.ProcessState.ExitCode() }

func (a *cli) lockerGuardCommand() *cobra.Command {
	var group int
	c := a.command(verb{
		use: "guard -- CMD…", kind: noRedis, short: "the process that locker run puts between itself and the command",
		args:  cobra.MinimumNArgs(1),
		flags: func(f *flagSet) { f.IntVar(&group, "group", 0, "process group for the command (0: a new one)") },
		do: func(_ *cobra.Command, args []string) error {
			d := &duty{hear: os.NewFile(3, "locker run"), say: os.NewFile(4, "locker run"), group: group}
			unix.CloseOnExec(3)
			unix.CloseOnExec(4)
			err := d.run(args)
			// A terminal may stop background writers. Not ignored earlier, or the command would
			// inherit it.
			signal.Ignore(unix.SIGTTOU)
			return err
		},
	})
	c.Hidden = true
	return c
}

// duty is the guard's side.
type duty struct {
	hear, say *os.File
	// group is locker run's process group, if the command has to be in it to use the terminal; its
	// other processes must not be touched. 0 = the command has its own group.
	group      int
	cmd        *exec.Cmd
	stop, kill time.Duration // by procfs.BootTime
	stopped    bool
	lost       bool
}

// run starts the command and returns its exit code when it is gone. It must run on the main
// goroutine, which package proc keeps on the main thread: the command dies with that thread.
func (d *duty) run(args []string) error {
	// The process that holds the lock passes these signals on.
	ignored := make(chan os.Signal, 1)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(ignored, s)
		}
	}
	// Processes that outlive their parents become children of this one, where they can be found.
	if err := procfs.Subreaper(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(d.hear); s.Scan(); {
			lines <- s.Text()
		}
	}()
	first, ok := <-lines
	if !ok {
		return errors.New("locker guard is started by locker run alone")
	}
	d.onLine(first)
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	d.cmd.SysProcAttr = commandAttributes(d.group)
	if err := d.cmd.Start(); err != nil {
		return cannotStart(args[0], err)
	}
	_, _ = fmt.Fprintln(d.say, "started")
	d.watch(lines)
	if d.lost {
		_, _ = fmt.Fprintln(d.say, "lost")
	}
	status := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exitCode(128 + int(status.Signal()))
	}
	return exitCode(status.ExitStatus())
}

// watch returns when the command's group or, after the loss of the lock, all descendants have
// gone.
func (d *duty) watch(lines <-chan string) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		// The command is not reaped yet, so its group's number is not reused.
		launch.AwaitExit(d.cmd.Process.Pid)
	}()
	look := time.NewTicker(guardLooks)
	defer look.Stop()
	for gone := false; !gone; {
		select {
		case line, ok := <-lines:
			if !ok { // the process that renews the lock is gone
				lines = nil
				d.onLine("stop")
				continue
			}
			d.onLine(line)
		case <-look.C:
			switch now := procfs.BootTime(); {
			case now >= d.kill:
				d.onLine("kill")
			case now >= d.stop:
				d.onLine("stop")
			}
		case <-exited:
			gone = true
		}
	}
	for d.signal(unix.SIGKILL) && d.group != 0 {
		<-look.C
	}
	if d.lost {
		endBelow(nil)
	}
	_ = d.cmd.Wait()
}

// onLine obeys a line of the process that holds the lock.
func (d *duty) onLine(line string) {
	words := strings.Fields(line)
	switch {
	case len(words) == 3 && words[0] == "lease":
		stop, _ := strconv.ParseInt(words[1], 10, 64)
		kill, _ := strconv.ParseInt(words[2], 10, 64)
		d.stop, d.kill = time.Duration(stop), time.Duration(kill)
	case len(words) == 2 && words[0] == "signal":
		number, _ := strconv.Atoi(words[1])
		d.pass(syscall.Signal(number))
	case line == "stop" && !d.stopped:
		d.lost, d.stopped = true, true
		d.pass(unix.SIGTERM)
	case line == "kill":
		d.lost = true
		d.signal(unix.SIGKILL)
		procfs.EndDescendants()
	}
}

// pass passes a signal on. Signals to end are followed by CONT, or a stopped process would miss
// them.
func (d *duty) pass(s syscall.Signal) {
	d.signal(s)
	if slices.Contains(ending, os.Signal(s)) {
		d.signal(unix.SIGCONT)
	}
}

// signal sends a signal to the command and its group's descendants. found: one may have been
// alive.
func (d *duty) signal(s syscall.Signal) (found bool) {
	if d.group == 0 {
		return unix.Kill(-d.cmd.Process.Pid, s) == nil
	}
	all, err := procfs.Descendants(nil)
	group := d.group
	if st, err := procfs.ReadStat(d.cmd.Process.Pid); err == nil {
		group = st.Group // an interactive shell makes its own
	}
	for _, p := range all {
		if p.Group == group {
			found = true
			p.Signal(s)
		}
	}
	return found || err != nil
}

// endBelow kills all descendants except those of spared children, and waits for their end.
func endBelow(spared map[procfs.ID]bool) {
	s := procfs.Sweep{Judge: func(p procfs.Seen) (procfs.Verdict, error) {
		if spared[p.ID] {
			return procfs.Spared, nil
		}
		return procfs.Ours, nil
	}}
	_, _ = s.Run(context.Background()) // only the context's end is an error
}
