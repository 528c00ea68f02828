//go:build linux

package runner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// soon is how long a test waits for what must happen, on a loaded machine.
const soon = 30 * time.Second

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("RESQUED_FORK_FD") != "":
		beTemplate()
		return
	case os.Getenv("RESQUED_FD") != "" && os.Getenv("RUNNER_TEST") != "":
		beRunner()
		return
	}
	_ = procfs.Subreaper()
	goleak.VerifyTestMain(m)
}

// shim is the test binary as a runner.
type shim struct {
	out   *os.File
	mu    sync.Mutex
	slots int
}

func (s *shim) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

type shimJob struct {
	Number  int64
	How     string
	ID      string
	Class   string
	Payload struct{ Args []any }
}

// beRunner performs jobs whose class names an action.
func beRunner() {
	fd, _ := strconv.Atoi(os.Getenv("RESQUED_FD"))
	unix.CloseOnExec(fd)
	slots, _ := strconv.Atoi(os.Getenv("RESQUED_CONCURRENCY"))
	s := &shim{out: os.NewFile(uintptr(fd), "resqued"), slots: slots}
	in := bufio.NewReaderSize(s.out, 1<<20)
	if !s.boot(os.Getenv("RUNNER_TEST")) {
		return
	}
	gone := make(chan struct{})
	var cancels sync.Map
	leaving := false
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var m struct {
			Job       *shimJob
			Died      *shimJob
			Cancel    int64
			Leaving   int64
			Why       string
			Leave     bool
			SliceOver int64 `json:"slice_over"`
			Pause     bool
			Resume    bool
			Reply     json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintf(os.Stderr, "bad line %q\n", line)
			os.Exit(9)
		}
		switch {
		case m.Leave:
			if os.Getenv("RUNNER_TEST") == "stays" {
				continue
			}
			os.Exit(0)
		case m.Died != nil:
			s.hook(m.Died)
		case m.Job != nil:
			cancelled := make(chan string, 1)
			cancels.Store(m.Job.Number, cancelled)
			switch {
			case s.slots == 1 && m.Job.Class == "Echo":
				s.say(`{"done":%d}`, m.Job.Number)
				continue
			case leaving: // it has crossed a cancel
				s.say(`{"requeue":%d}`, m.Job.Number)
				continue
			case m.Job.Class == "Deaf": // reads nothing more
				s.touch(fmt.Sprint(m.Job.Payload.Args[0]))
				<-s.file(fmt.Sprint(m.Job.Payload.Args[1]))
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			go s.perform(m.Job, cancelled, gone)
		case m.Cancel != 0 || m.SliceOver != 0 || m.Leaving != 0:
			if c, ok := cancels.Load(max(m.Cancel, m.SliceOver, m.Leaving)); ok {
				leaving = leaving || m.Cancel != 0 && s.slots > 1
				select {
				case c.(chan string) <- m.Why:
				default:
				}
			}
		case m.Reply != nil:
			fmt.Fprintf(os.Stderr, "reply %s\n", m.Reply)
		case m.Pause:
			s.say(`{"log":{"message":"paused"}}`)
		case m.Resume:
			s.say(`{"log":{"message":"resumed"}}`)
		}
	}
}

// hook acts as failure hooks, as the last argument of a job says.
func (s *shim) hook(job *shimJob) {
	n, args := job.Number, job.Payload.Args
	switch what := args[len(args)-1]; what {
	case "told":
		s.say(`{"failed":%d,"exception":"Resque::DirtyExit","message":"m"}`, n)
	case "discards":
		s.say(`{"discard":%d,"why":"runs again: %s"}`, n, job.How)
	case "dies":
		os.Exit(5)
	case "hangs":
	default:
		s.say(`{"done":%d}`, n)
	}
}

// boot says hello; how is what goes wrong with it. false: the process should end.
func (s *shim) boot(how string) bool {
	word, rest, _ := strings.Cut(how, " ")
	switch word {
	case "dies":
		fmt.Fprintln(os.Stderr, "cannot load application")
		os.Exit(3)
	case "slow":
		<-time.After(300 * time.Millisecond)
	case "hangs":
		<-time.After(time.Hour)
	case "junk":
		s.say("hello world")
		<-time.After(time.Hour)
	case "once": // boots well when the file is there, and makes it
		if f, err := os.OpenFile(rest, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = f.Close()
			os.Exit(4)
		}
	}
	protocol := 1
	if word == "version" {
		protocol = 2
	}
	s.say(`{"hello":{"protocol":%d,"concurrency":%d,"language":"go","app":"test","classes":null,"failure_hooks":%t,"leaving":%t}}`, protocol, s.slots, word == "hooks", word == "rooms")
	if word == "brief" {
		os.Exit(0)
	}
	return true
}

// perform acts as the class of a job says.
func (s *shim) perform(job *shimJob, cancelled chan string, gone chan struct{}) {
	n := job.Number
	arg := func(i int) string {
		if i < len(job.Payload.Args) {
			return fmt.Sprint(job.Payload.Args[i])
		}
		return ""
	}
	switch job.Class {
	case "Echo":
	case "Interrupted":
		s.say(`{"done":%d,"interrupted":true}`, n)
		return
	case "Fails":
		s.say(`{"failed":%d,"exception":"Net::ReadTimeout","message":"too\nslow\u0007","backtrace":["a.rb:1","b.rb:2"]}`, n)
		return
	case "Requeues":
		s.say(`{"requeue":%d,"after":2.5}`, n)
		return
	case "Discards":
		s.say(`{"discard":%d,"why":"no such user"}`, n)
		return
	case "Kill":
		fmt.Fprintln(os.Stderr, "last words")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "Exits":
		fmt.Fprintln(os.Stderr, "goodbye")
		os.Exit(7)
	case "Closes":
		_ = unix.Shutdown(3, unix.SHUT_RDWR)
		<-gone
	case "Waits":
		if arg(1) != "" {
			s.touch(arg(1))
		}
		select {
		case why := <-cancelled:
			s.say(`{"failed":%d,"exception":"Resque::TermException","message":"%s"}`, n, why)
			return
		case <-s.file(arg(0)):
		}
	case "Stubborn":
		s.touch(arg(0))
		<-gone
	case "Finishes":
		s.touch(arg(0))
		<-cancelled
	case "Twice":
		s.say(`{"done":%d}`, n)
	case "Wrong":
		s.say(`{"done":%d}`, n+5)
		<-gone
	case "Hello":
		s.say(`{"hello":{"protocol":1}}`)
		<-gone
	case "Junk":
		s.say(`not json`)
		<-gone
	case "Long":
		s.mu.Lock()
		_, _ = s.out.WriteString(strings.Repeat("x", maxAnswer+64<<10))
		<-gone
	case "Floods":
		for range 20000 {
			s.say(`{"log":{"job":%d,"level":"debug","message":"%s"}}`, n, strings.Repeat("y", 50))
			s.say(`{"progress":{"job":%d,"done":3,"total":9}}`, n)
		}
	case "Stderr":
		line := strings.Repeat("z", 99) + "\n"
		for range 50000 {
			_, _ = os.Stderr.WriteString(line)
		}
	case "Leaves": // something behind, out of its session
		cmd := exec.Command("setsid", "sh", "-c", "echo $$ > "+arg(0)+"; exec sleep 1000")
		_ = cmd.Start()
		<-s.file(arg(0))
		if arg(1) == "die" {
			os.Exit(1)
		}
		if arg(1) == "hang" {
			<-gone
		}
	case "Unknown":
		s.say(`{"colour":"blue"}`)
	case "Pid":
		s.say(`{"failed":%d,"exception":"Pid","message":"%d"}`, n, os.Getpid())
		return
	case "Obstinate":
		s.touch(arg(0))
		<-cancelled
		s.touch(arg(1))
		<-s.file(arg(2))
	case "Half": // a line
		s.say(`{"done":%d}`, n)
		_, _ = s.out.WriteString(`{"log":`)
		s.touch(arg(0))
		return
	case "Chatters": // without an end
		s.say(`{"done":%d}`, n)
		s.touch(arg(0))
		for {
			s.say(`{"log":{"level":"debug","message":"and another thing"}}`)
		}
	case "Later":
		s.say(`{"done":%d}`, n)
		<-time.After(20 * time.Millisecond)
		os.Exit(0)
	case "Refresh":
		s.say(`{"refresh_lock":%d}`, n)
	case "Report":
		s.say(`{"report":{"job":%d,"line":{"state":{"a":1}}}}`, n)
	case "UntilOver":
		<-cancelled
	}
	s.say(`{"done":%d}`, n)
}

func (s *shim) touch(name string) {
	_ = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
}

// file returns a channel that is closed when there is something in a file.
func (s *shim) file(name string) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		for {
			if text, err := os.ReadFile(name); err == nil && len(text) > 0 {
				close(c)
				return
			}
			<-time.After(time.Millisecond)
		}
	}()
	return c
}
