package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays three parts: it runs the tests, it is the worker process
// that they spawn, and it is a whole program of its own where a test needs one
// that it can kill.
const partEnv = "PROC_TEST_PART"

func TestMain(m *testing.M) {
	if IsWorker() {
		os.Exit(workerPart())
	}
	switch os.Getenv(partEnv) {
	case "master":
		os.Exit(masterPart())
	case "title":
		os.Exit(titlePart())
	case "strays":
		os.Exit(straysPart())
	case "sweep":
		os.Exit(sweepPart())
	case "end":
		os.Exit(endPart())
	case "pidfile":
		os.Exit(pidfilePart())
	case "processors":
		os.Exit(processorsPart())
	case "view":
		os.Exit(viewPart())
	case "group":
		os.Exit(groupPart())
	case "ballast":
		os.Exit(ballastPart())
	}
	goleak.VerifyTestMain(m)
}

// act is what a worker process of these tests does, handed over as its
// configuration.
type act struct {
	Act    string
	Secret string
}

func workerPart() int {
	// An empty environment tells that the variable is gone for whom we start.
	conn, config, err := Inherit()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 78
	}
	var a act
	if err := json.Unmarshal(config, &a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 78
	}
	report := Message{Type: Hello, Protocol: Protocol, PID: os.Getpid(), Reason: a.Secret}
	switch a.Act {
	case "title":
		SetTitle("resqued: worker 2 of 4: 3 jobs")
	case "tree", "tagged tree":
		// One child in a session of its own, with a child that the shell leaves
		// behind, and one without any environment.
		argvs := [][]string{
			{"setsid", "sh", "-c", "sleep 1000 & sleep 1000"},
			{"env", "-i", "sleep", "1000"},
		}
		if a.Act == "tagged tree" {
			argvs = argvs[:1]
		}
		for _, argv := range argvs {
			if err := exec.Command(argv[0], argv[1:]...).Start(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	case "bare tree":
		// Without environment, in sessions of their own, one of them without a parent.
		const script = "setsid sleep 1000 & (setsid sleep 1000 &) ; exec sleep 1000"
		if err := exec.Command("setsid", "env", "-i", "sh", "-c", script).Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case "headless":
		runtime.GOMAXPROCS(2) // the first thread takes one with it
		go func() {
			_ = conn.Send(report)
			select {}
		}()
		// The first thread ends; the process lives on without it.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	case "exit":
		_ = conn.Send(report)
		return 3
	case "last words":
		_ = conn.Send(report)
		_ = conn.Send(Message{Type: Bye, Done: 5})
		return 0
	}
	if err := conn.Send(report); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if a.Act == "deaf" {
		select {}
	}
	for {
		m, err := conn.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println("eof")
			return 7
		}
		_ = conn.Send(Message{Type: Ready, Proc: m.Proc, State: m.State})
	}
}

// masterPart spawns a worker process and waits for its own end. Its main
// goroutine is on the main thread.
func masterPart() int {
	s := &Spawner{}
	config, _ := json.Marshal(act{Act: "echo"})
	c, err := s.Spawn(Spec{
		Proc: "p", Title: "resqued: worker", Config: config,
		DieWithMaster: os.Getenv("DIE") != "",
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if m, err := c.Recv(); err != nil || m.Type != Hello {
		fmt.Println(m, err)
		return 1
	}
	fmt.Println("worker", c.PID())
	select {}
}

func titlePart() int {
	SetTitle("resqued: master: running, 4 workers")
	line, _ := json.Marshal(os.Args)
	fmt.Println(string(line))
	env, _ := json.Marshal(os.Environ())
	fmt.Println(string(env))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// straysPart reaps as eagerly as it can while commands of its own come and go.
func straysPart() int {
	if err := Subreaper(); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var lost, wanted int
	var group sync.WaitGroup
	reaped := make(chan int)
	go func() {
		s := Strays{}
		n := 0
		for ctx.Err() == nil || n < wanted {
			n += s.Reap()
		}
		reaped <- n
	}()
	var mu sync.Mutex
	for range 4 {
		group.Go(func() {
			for range 25 {
				// The shell leaves an orphan behind.
				if err := exec.Command("sh", "-c", "true &").Run(); err != nil {
					mu.Lock()
					lost++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	wanted = 100
	cancel()
	fmt.Println(lost, <-reaped)
	return 0
}

// sweepPart is a master that has two worker processes with a tree each. It ends one
// of them and sweeps after it.
func sweepPart() int {
	self, err := Self()
	if err != nil || Subreaper() != nil {
		return 1
	}
	config, _ := json.Marshal(act{Act: "tree"})
	spawner := &Spawner{}
	dead, other := self.Child(0, 1), self.Child(1, 2)
	for _, name := range []string{dead, other} {
		c, err := spawner.Spawn(Spec{Proc: name, Title: "resqued: worker", Config: config})
		if err == nil {
			_, err = c.Recv()
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer func() {
			// While it lives: what has no environment cannot be told to be its, later.
			_, _ = Sweep(context.Background(), name)
			c.Wait()
		}()
	}
	count := func(name string) (n int) {
		found, _ := below(name, see)
		for pid, p := range found {
			if !p.dying && (p.proc == name || p.proc == "" && found.belongs(pid, name)) {
				n++
			}
		}
		return n
	}
	for count(dead) != 5 || count(other) != 5 {
		<-time.After(time.Millisecond)
	}
	killed, err := Sweep(context.Background(), dead)
	fmt.Println(ours(dead), ours("h:b:1-2:0.1"), killed, err, count(dead), count(other))
	return 0
}

// endPart is a process that ends what it has started, and goes on.
func endPart() int {
	if Subreaper() != nil {
		return 1
	}
	for _, argv := range [][]string{{"setsid", "sh", "-c", "sleep 1000 & env -i sleep 1000"}, {"env", "-i", "sleep", "1000"}} {
		if err := exec.Command(argv[0], argv[1:]...).Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	living := func() (n int) {
		found, _ := below("", see)
		for _, p := range found {
			if !p.dying {
				n++
			}
		}
		return n
	}
	for living() != 4 {
		<-time.After(time.Millisecond)
	}
	EndDescendants()
	for living() != 0 {
		<-time.After(time.Millisecond)
	}
	fmt.Println("alone")
	return 0
}

func pidfilePart() int {
	f, err := WritePIDFile(os.Getenv("FILE"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if os.Getenv("KEEP") == "" {
		_ = f.Remove()
	}
	return 0
}

// program is one of the parts above as a process of its own.
type program struct {
	*exec.Cmd
	out   *bufio.Reader
	stdin io.Closer
}

func start(t *testing.T, part string, env ...string) *program {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "one", "two")
	cmd.Env = append(os.Environ(), append(env, partEnv+"="+part)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe: its reader is closed by Wait.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.Close()
	})
	return &program{Cmd: cmd, out: bufio.NewReader(r), stdin: stdin}
}

// line returns the next line of output, or "EOF" when every process that holds
// it is gone.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
