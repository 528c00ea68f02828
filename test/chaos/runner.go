package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// runnerJobs are the classes that the runner performs.
//
//go:embed runner.rb
var runnerJobs []byte

// runnerClasses are their names. They note their own starts and ends.
var runnerClasses = []string{"Runner", "RunnerDie", "RunnerPoison", "RunnerFail"}

// runnerConfig is the runner in a daemon's configuration. Its processes are replaced all the
// time.
const runnerConfig = `
runners:
  %s:
    command: [ruby, %q, %q]
    jobs_per_runner: 25
    boot_timeout: 20s
    kill_after: 300ms
`

// runnerEnv is set for a daemon that has a runner.
const runnerEnv = "CHAOS_RUNNER"

// shim is Ruby's runner within the source, and its folder within the directory of a run.
const shim = "runners/ruby"

// provideRunner puts the program of the runner where the daemons of all users can read it. The
// error is why there can be no runner here.
func (c *chaos) provideRunner(ctx context.Context) error {
	if _, err := exec.LookPath("ruby"); err != nil {
		return err
	}
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(c.dir, shim), os.DirFS(filepath.Join(root, shim))); err != nil {
		return err
	}
	if err := os.WriteFile(c.runnerFile(), runnerJobs, 0o644); err != nil { //nolint:gosec // other users read it
		return err
	}
	// Independent of the user's umask.
	return errors.Join(os.Chmod(filepath.Join(c.dir, "runners"), 0o755), //nolint:gosec // as above
		filepath.WalkDir(filepath.Join(c.dir, shim), func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chmod(path, 0o755)) //nolint:gosec // as above
		}))
}

func (c *chaos) runnerFile() string { return filepath.Join(c.dir, "runner.rb") }

// knows reports whether a program of the harness can read a runner's configuration: another
// version may not.
func (c *chaos) knows(ctx context.Context, program string) bool {
	file := filepath.Join(c.dir, "runners.yaml")
	if os.WriteFile(file, []byte("queues: [high]\n"+c.runnerText("app")), 0o600) != nil {
		return false
	}
	cmd := exec.CommandContext(ctx, program, "config", "check", "--config", file)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), roleEnv + "=" + roleDaemon, runnerEnv + "=1"}
	return cmd.Run() == nil
}

// runnerText is the part of a daemon's configuration that names its runner after its mark. It
// appears in the titles of Ruby's processes, whose environment is unreadable.
func (c *chaos) runnerText(mark string) string {
	return fmt.Sprintf(runnerConfig, mark, filepath.Join(c.dir, shim, "exe", "resqued-runner"), c.runnerFile())
}

// findRunner gives the daemons a runner, if all of their programs support it.
func (c *chaos) findRunner(ctx context.Context) {
	err := c.provideRunner(ctx)
	if beside := slices.IndexFunc(c.daemons(), func(m *machine) bool { return m.beside != "" }); err == nil && beside >= 0 && !c.knows(ctx, c.daemons()[beside].beside) {
		err = errors.New("the other version knows no runners")
	}
	if err == nil {
		c.runners = true
		return
	}
	for _, kind := range runnerKinds {
		c.leaveOut(kind, err)
	}
}

// isKin reports whether a process is a runner of the machine, or its template.
func (m *machine) isKin(p proctest.Process) bool {
	return strings.HasPrefix(p.Title, "resqued-runner "+m.mark+":")
}

// kin returns the runner processes of a machine and its templates.
func (m *machine) kin() (runners, templates []process) {
	for _, p := range proctest.Find(m.isKin) {
		if strings.HasSuffix(p.Title, ": template") {
			templates = append(templates, process{Process: p})
		} else {
			runners = append(runners, process{Process: p})
		}
	}
	return runners, templates
}

// templates returns the booted templates without their newest forks, which have the template's
// title for a moment.
func (m *machine) templates() []process {
	_, templates := m.kin()
	return slices.DeleteFunc(templates, func(p process) bool { return p.Parent != m.pid })
}

// isRunnerClass reports whether a runner performs the jobs of a class.
func isRunnerClass(class string) bool { return strings.HasPrefix(class, "Runner") }
