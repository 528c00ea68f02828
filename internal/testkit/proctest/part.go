package proctest

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// Part is the test binary as a process of its own, in a part of a test.
type Part struct {
	*exec.Cmd
	// Stdin is the process's standard input.
	Stdin io.Closer
	out   *bufio.Reader
}

// StartPart starts the test binary with arguments "one" and "two" and with env added to its
// environment, in which TestMain finds its part. The process is killed at the end of the test.
func StartPart(tb testing.TB, env ...string) *Part {
	tb.Helper()
	testlevel.Integration(tb)
	cmd := exec.Command("/proc/self/exe", "one", "two")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	// Not StdoutPipe: its reader is closed by Wait.
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.Close()
	})
	return &Part{Cmd: cmd, Stdin: stdin, out: bufio.NewReader(r)}
}

// Line returns the next line of output, or "EOF" when every process that holds it is gone.
func (p *Part) Line(tb testing.TB) string {
	tb.Helper()
	line, err := p.out.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// FlickerFiles alternately lets this process open files and prevents it, until end is called.
// Files can be opened for up to open at a time.
func FlickerFiles(tb testing.TB, open time.Duration) (end func()) {
	tb.Helper()
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		tb.Fatal(err)
	}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			for limit := range uint64(2) {
				_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: had.Cur * limit, Max: had.Max})
				// Timers are too coarse. The time with files is long enough for some looks to
				// finish.
				longest := 200*time.Microsecond + time.Duration(limit)*open
				for until := time.Now().Add(rand.N(longest)); time.Now().Before(until); {
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	end = sync.OnceFunc(func() {
		close(stop)
		ended.Wait()
	})
	tb.Cleanup(end)
	return end
}
