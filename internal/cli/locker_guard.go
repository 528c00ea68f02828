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

// The exit codes of a command that could not be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// guardLooks is how often a guard looks at the clock: timers stand still while the
// machine is suspended.
const guardLooks = 20 * time.Millisecond

// leaseTerms returns the line for a guard that says when its command gets TERM and when KILL,
// by the clock that all processes of the machine share.
func leaseTerms(stop, kill time.Duration) string { return fmt.Sprintf("lease %d %d", stop, kill) }

// guard is the process between this one and the command. It ends the command in time
// when this process cannot, because it was killed or stopped.
type guard struct {
	cmd   *exec.Cmd
	words *os.File
	// spared are children that this process had before.
	spared map[procfs.ID]bool
	// started is closed when the command has been started.
	started, gone chan struct{}

	// Written before gone is closed.
	lost bool
}

// atTerminal reports whether the standard input, output or error of this process is the
// terminal that controls its session.
func atTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	return false
}

// startGuard starts the guard, which starts the command: in this process's group, or in one
// of its own.
func startGuard(command, environ []string, terms string, sameGroup bool) (*guard, error) {
	// When the guard is killed, the command and what it started become children of this process.
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
	// The file that runs now, even if another one has taken its place.
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
	// So that signals from a terminal to this process's group do not reach it.
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

// tell sends a line. It ignores errors: listen notices a guard that is gone.
func (g *guard) tell(line string) { _, _ = fmt.Fprintln(g.words, line) }

// listen reads what the guard says until it and the command are gone.
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

// hasStarted reports whether the guard has started the command.
func (g *guard) hasStarted() bool {
	select {
	case <-g.started:
		return true
	default:
		return false
	}
}

// kill ends a guard that does not do its duty; its command goes with it.
func (g *guard) kill() { _ = g.cmd.Process.Kill() }

// result says how the command has ended. gone must be closed.
func (g *guard) result() (lost bool, code int) { return g.lost, g.cmd.ProcessState.ExitCode() }

func (a *cli) lockerGuardCommand() *cobra.Command {
	var group int
	c := &cobra.Command{
		Use: "guard -- CMD…", Annotations: noRedis, Hidden: true,
		Short: "the process that locker run puts between itself and the command",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d := &duty{hear: os.NewFile(3, "locker run"), say: os.NewFile(4, "locker run"), group: group}
			unix.CloseOnExec(3)
			unix.CloseOnExec(4)
			err := d.run(args)
			// A terminal may stop processes in the background that write to it. Ignored no
			// earlier, as the command would inherit that.
			signal.Ignore(unix.SIGTTOU)
			return err
		},
	}
	c.Flags().IntVar(&group, "group", 0, "process group for the command (0: a new one)")
	return c
}

// duty is the guard's side.
type duty struct {
	hear, say *os.File
	// group is the process group of locker run, if the command has to be in it to use the
	// terminal. Other processes of that group must not be touched. 0 = the command has a
	// group of its own.
	group      int
	cmd        *exec.Cmd
	stop, kill time.Duration // by procfs.BootTime
	stopped    bool
	lost       bool
}

// run starts the command and returns its exit code when it is gone. It runs on the main
// goroutine, which package proc keeps on the main thread: with that the command dies.
func (d *duty) run(args []string) error {
	// The process that holds the lock passes these signals on.
	ignored := make(chan os.Signal, 1)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(ignored, s)
		}
	}
	// Processes that outlive their parents come here, where they can be found.
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

// watch returns when the command is gone, with its group; if the lock was lost, with
// all that came from it.
func (d *duty) watch(lines <-chan string) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		// The command is not reaped yet, so the number of its group is not used again.
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

// onLine carries out a line of the process that holds the lock.
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

// pass passes a signal on to the command. Signals that ask it to end are followed by CONT,
// because a stopped process would not notice them.
func (d *duty) pass(s syscall.Signal) {
	d.signal(s)
	if slices.Contains(ending, os.Signal(s)) {
		d.signal(unix.SIGCONT)
	}
}

// signal sends a signal to the command and to those of its descendants that are in its group,
// and reports whether any of them was alive, or may have been.
func (d *duty) signal(s syscall.Signal) (found bool) {
	if d.group == 0 {
		return unix.Kill(-d.cmd.Process.Pid, s) == nil
	}
	all, err := procfs.Descendants(nil)
	group := d.group
	if st, err := procfs.ReadStat(d.cmd.Process.Pid); err == nil {
		group = st.Group // an interactive shell makes one of its own
	}
	for _, p := range all {
		if p.Group == group {
			found = true
			p.Signal(s)
		}
	}
	return found || err != nil
}

// endBelow kills all descendants of this process but those that come from the spared children,
// and returns when none is left.
func endBelow(spared map[procfs.ID]bool) {
	s := procfs.Sweep{Judge: func(p procfs.Seen) (procfs.Verdict, error) {
		if spared[p.ID] {
			return procfs.Spared, nil
		}
		return procfs.Ours, nil
	}}
	_, _ = s.Run(context.Background()) // it fails only when that ends
}
