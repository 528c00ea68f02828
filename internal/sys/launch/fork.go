package launch

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// fork starts the process as the standard library does.
func (p *Process) fork() error {
	path, err := p.program.Argv[0], error(nil)
	if !strings.Contains(path, "/") { // else it is looked for in Dir
		if path, err = exec.LookPath(path); err != nil {
			return &Error{Op: "exec", Path: p.program.Argv[0], Err: err}
		}
	}
	attr := &syscall.ProcAttr{Dir: p.program.Dir, Env: unique(p.program.Env), Sys: p.attributes()}
	for _, f := range p.program.Files {
		attr.Files = append(attr.Files, f.Fd())
	}
	// Without family: it may take long.
	p.PID, err = syscall.ForkExec(path, p.program.Argv, attr)
	if err == nil {
		p.launcher.family.Lock()
		defer p.launcher.family.Unlock()
		p.launcher.started[p.PID] = true
		return nil
	}
	if attr.Dir != "" {
		if info, err := os.Stat(attr.Dir); err != nil || !info.IsDir() {
			return &Error{Op: "chdir", Path: attr.Dir, Err: syscall.ENOENT}
		}
	}
	return &Error{Op: "exec", Path: path, Err: err}
}

// unique keeps the last variable of each name.
func unique(env []string) []string {
	last := make(map[string]int, len(env))
	for i, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		last[name] = i
	}
	list := make([]string, 0, len(last))
	for i, variable := range env {
		if name, _, _ := strings.Cut(variable, "="); last[name] == i {
			list = append(list, variable)
		}
	}
	return list
}
