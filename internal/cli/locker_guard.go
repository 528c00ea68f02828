package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/proc"
)

// The exit codes of a command that could not be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// guardLooks is how often a guard looks at the clock: timers stand still while the
// machine is suspended.
const guardLooks = 20 * time.Millisecond

func bootTime() time.Duration { return proc.BootTime() }

// leaseTerms tell a guard when its command gets TERM and when KILL, by the clock that
// all processes of the machine share.
func leaseTerms(stop, kill time.Duration) string { return fmt.Sprintf("lease %d %d", stop, kill) }

// guard is the process between this one and the command. It ends the command in time
// when this process cannot, because it was killed or stopped.
type guard struct {
	cmd   *exec.Cmd
	words *os.File
	gone  chan struct{}

	// Written before gone is closed.
	group int
	lost  bool
}

// startGuard starts the guard, which starts the command.
func startGuard(command, environ []string, terms string) (*guard, error) {
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
	g := &guard{words: words, gone: make(chan struct{})}
	// The file that runs now, even if another one has taken its place.
	g.cmd = exec.Command("/proc/self/exe")
	g.cmd.Args = append([]string{os.Args[0], "locker", "guard", "--"}, command...)
	g.cmd.Env = environ
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.ExtraFiles = []*os.File{hear, say}
	// Out of reach of what a terminal sends to this process's group.
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

// tell sends a line. A guard that is gone is noticed elsewhere.
func (g *guard) tell(line string) { _, _ = fmt.Fprintln(g.words, line) }

// listen reads what the guard says until it and the command are gone.
func (g *guard) listen(answers *os.File) {
	defer close(g.gone)
	defer answers.Close()
	lines := bufio.NewScanner(answers)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "started":
			g.group, _ = strconv.Atoi(number)
		case "lost":
			g.lost = true
		}
	}
	_ = g.cmd.Wait()
	if g.cmd.ProcessState.ExitCode() < 0 { // somebody has killed the guard
		if g.group > 0 {
			_ = unix.Kill(-g.group, unix.SIGKILL)
		}
		g.lost = true
	}
	_ = g.words.Close()
}

// kill ends a guard that does not do its duty; its command goes with it.
func (g *guard) kill() { _ = g.cmd.Process.Kill() }

// result says how the command has ended. gone must be closed.
func (g *guard) result() (lost bool, code int) { return g.lost, g.cmd.ProcessState.ExitCode() }

func (a *app) lockerGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use: "guard -- CMD…", Hidden: true,
		Short: "the process that locker run puts between itself and the command",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d := &duty{hear: os.NewFile(3, "locker run"), say: os.NewFile(4, "locker run")}
			unix.CloseOnExec(3)
			unix.CloseOnExec(4)
			return d.run(args)
		},
	}
}

// duty is the guard's side.
type duty struct {
	hear, say  *os.File
	cmd        *exec.Cmd
	stop, kill time.Duration // by bootTime
	stopped    bool
	lost       bool
}

// run starts the command and returns its exit code when it is gone. It runs on the main
// goroutine, which package proc keeps on the main thread: with that the command dies.
func (d *duty) run(args []string) error {
	// They come to the command by way of the process that holds the lock.
	ignored := make(chan os.Signal, 1)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(ignored, s)
		}
	}
	// Processes that outlive their parents come here, where they can be found.
	if err := proc.Subreaper(); err != nil {
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
	d.obey(first)
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return cannotStart(args[0], err)
	}
	_, _ = fmt.Fprintf(d.say, "started %d\n", d.cmd.Process.Pid)
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
		// Not reaped yet: as long as it is not, the number of its group is nobody else's.
		for errors.Is(unix.Waitid(unix.P_PID, d.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	look := time.NewTicker(guardLooks)
	defer look.Stop()
	for gone := false; !gone; {
		select {
		case line, ok := <-lines:
			if !ok { // nobody renews the lock any more
				lines = nil
				d.obey("stop")
				continue
			}
			d.obey(line)
		case <-look.C:
			switch now := bootTime(); {
			case now >= d.kill:
				d.obey("kill")
			case now >= d.stop:
				d.obey("stop")
			}
		case <-exited:
			gone = true
		}
	}
	d.signal(unix.SIGKILL)
	for d.lost && killBelow() {
		<-look.C
	}
	_ = d.cmd.Wait()
}

// obey does what a line says.
func (d *duty) obey(line string) {
	words := strings.Fields(line)
	switch {
	case len(words) == 3 && words[0] == "lease":
		stop, _ := strconv.ParseInt(words[1], 10, 64)
		kill, _ := strconv.ParseInt(words[2], 10, 64)
		d.stop, d.kill = time.Duration(stop), time.Duration(kill)
	case len(words) == 2 && words[0] == "signal":
		number, _ := strconv.Atoi(words[1])
		d.signal(syscall.Signal(number))
	case line == "stop" && !d.stopped:
		d.lost, d.stopped = true, true
		d.signal(unix.SIGTERM)
		d.signal(unix.SIGCONT) // a stopped process would not notice
	case line == "kill":
		d.lost = true
		d.signal(unix.SIGKILL)
		killBelow()
	}
}

func (d *duty) signal(s syscall.Signal) { _ = unix.Kill(-d.cmd.Process.Pid, s) }

// killBelow kills all living descendants of this process, and says whether there were
// any. It looks at every process: not every kernel lists children.
func killBelow() (found bool) {
	children := map[int][]int{}
	living := map[int]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name in parentheses may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		living[pid] = fields[0] != "Z" && fields[0] != "X"
	}
	for todo := children[os.Getpid()]; len(todo) > 0; todo = todo[1:] {
		todo = append(todo, children[todo[0]]...)
		if living[todo[0]] {
			found = true
			_ = unix.Kill(todo[0], unix.SIGKILL)
		}
	}
	return found
}
