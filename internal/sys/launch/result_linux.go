package launch

import (
	"os/exec"
	"sync/atomic"
	"syscall"
)

// Begun reports whether the program runs or the process has ended.
func (p *Process) Begun() bool { return atomic.LoadUint32(&p.starting) == 0 }

// Opening returns the working directory or program that the system is opening for a process that
// has not begun; empty afterwards.
func (p *Process) Opening() string {
	if p.Begun() {
		return ""
	}
	m := &p.memory
	if m.chdir >= 0 && m.result(m.chdir) == pending {
		return p.program.Dir
	}
	for i, path := range m.candidates {
		if m.result(m.exec+i) == pending {
			return path
		}
	}
	return p.program.Argv[0]
}

func (m *memory) result(i int) uintptr { return atomic.LoadUintptr(&m.list[i].Result) }

// failure returns why the program of an ended process never began. It is nil if the process was
// killed earlier: the list does not say whether the program had begun.
func (p *Process) failure() error {
	m := &p.memory
	if m.list == nil {
		return nil // forked: a failure was reported at once
	}
	for i := range m.exec {
		op, path := "clone", p.program.Argv[0]
		if i == m.chdir {
			op, path = "chdir", p.program.Dir
		}
		switch result := m.result(i); {
		case result == pending:
			return nil
		case !m.list[i].Passed(result):
			return &Error{Op: op, Path: path, Err: syscall.Errno(-result)}
		}
	}
	errs := map[string]error{}
	for i, path := range m.candidates {
		result := m.result(m.exec + i)
		if result == pending {
			return nil
		}
		errs[path] = syscall.Errno(-result)
		if !m.list[m.exec+i].Passed(result) {
			return &Error{Op: "exec", Path: path, Err: errs[path]}
		}
	}
	name := p.program.Argv[0]
	if err := errs[name]; err != nil {
		return &Error{Op: "exec", Path: name, Err: err}
	}
	// Of the candidates, only a file that exists and cannot be run is worth reporting.
	if path, err := exec.LookPath(name); err == nil && errs[path] != nil {
		return &Error{Op: "exec", Path: path, Err: errs[path]}
	}
	return &Error{Op: "exec", Path: name, Err: exec.ErrNotFound}
}
