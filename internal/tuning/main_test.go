package tuning

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testlevel"
)

// partEnv names the part that the test binary plays as a process of its own.
const partEnv = "TUNING_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(partEnv) {
	case "processors":
		os.Exit(processorsPart())
	case "ballast":
		os.Exit(ballastPart())
	}
	goleak.VerifyTestMain(m)
}

// program is a part of the test binary as a process of its own.
type program struct {
	out *bufio.Reader
}

func start(t *testing.T, part string, env ...string) *program {
	t.Helper()
	testlevel.Integration(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, partEnv+"="+part)...)
	cmd.Stderr = os.Stderr
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
	return &program{out: bufio.NewReader(r)}
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
