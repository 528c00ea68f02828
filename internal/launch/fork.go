package launch

import (
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fork starts the process as the standard library does.
func (p *Process) fork() error {
	path, err := p.program.Argv[0], error(nil)
	if !strings.Contains(path, "/") { // else it is looked for in Dir
		if path, err = exec.LookPath(path); err != nil {
			return &Error{Op: "exec", Path: p.program.Argv[0], Err: err}
		}
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir: p.program.Dir, Env: unique(p.program.Env),
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, PidFD: &pidfd},
	}
	for _, f := range p.program.Files {
		attr.Files = append(attr.Files, f.Fd())
	}
	p.PID, err = syscall.ForkExec(path, p.program.Argv, attr)
	if err == nil {
		p.pidfd = int32(pidfd)
		return nil
	}
	if attr.Dir != "" {
		if info, err := os.Stat(attr.Dir); err != nil || !info.IsDir() {
			return &Error{Op: "chdir", Path: attr.Dir, Err: syscall.ENOENT}
		}
	}
	return &Error{Op: "exec", Path: path, Err: err}
}
