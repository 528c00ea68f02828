package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
)

// The test binary plays three parts: it runs the tests, it is the worker process that they
// spawn, and it is a whole program that a test can kill.
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
	case "sweep":
		os.Exit(sweepPart())
	case "pidfile":
		os.Exit(pidfilePart())
	}
	goleak.VerifyTestMain(m)
}

// act is what a worker process of these tests does, passed as its configuration.
type act struct {
	Act    string
	Secret string
}

func workerPart() int {
	// An empty environment shows that what we start does not have the variable.
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
	case "tree":
		// One child in a session of its own, with a child that the shell leaves
		// behind, and one without any environment.
		for _, argv := range [][]string{
			{"setsid", "sh", "-c", "sleep 1000 & sleep 1000"},
			{"env", "-i", "sleep", "1000"},
		} {
			if err := exec.Command(argv[0], argv[1:]...).Start(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
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
	config, _ := json.Marshal(act{Act: "echo"})
	c, err := Spawn(Spec{
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

// sweepPart is a master that has two worker processes with a tree each. It ends one
// of them and sweeps after it.
func sweepPart() int {
	self, err := Self()
	if err != nil || procfs.Subreaper() != nil {
		return 1
	}
	config, _ := json.Marshal(act{Act: "tree"})
	dead, other := self.Child(0, 1), self.Child(1, 2)
	for _, name := range []string{dead, other} {
		c, err := Spawn(Spec{Proc: name, Title: "resqued: worker", Config: config})
		if err == nil {
			_, err = c.Recv()
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer func() {
			// While it lives: later, a process without environment cannot be assigned to it.
			_, _ = Sweep(context.Background(), name)
			c.Wait()
		}()
	}
	for marked(dead) != 5 || marked(other) != 5 {
		<-time.After(time.Millisecond)
	}
	killed, err := Sweep(context.Background(), dead)
	fmt.Println(ours(dead), ours("h:b:1-2:0.1"), killed, err, marked(dead), marked(other))
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

// start plays one of the parts above as a process of its own.
func start(t *testing.T, part string, env ...string) *proctest.Part {
	t.Helper()
	return proctest.StartPart(t, append(env, partEnv+"="+part)...)
}
