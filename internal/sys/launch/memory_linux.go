package launch

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch/raw"
)

type start struct {
	memory memory
	// starting is not 0 while the process is in this one's memory: the kernel sets it.
	starting uint32
	pidfd    int32
	forked   int // pidfd of a forked process
	// handle is the pidfd, if Go's poller accepts it.
	handle *os.File
}

// memory is what a process reads and writes until its program has begun. It is in this process's
// heap and must not change until then.
type memory struct {
	text    []byte    // strings, each ending with a NUL
	vectors []uintptr // argv and envp, each ending with a 0
	list    []raw.Op
	// Read by the kernel, or written by the process.
	dfl   sigaction
	mask  uint64
	limit syscall.Rlimit
	locks syscall.Rlimit
	// chdir and exec are indexes into list; exec is that of the first of candidates.
	chdir, exec int
	candidates  []string
}

// sigaction is the kernel's layout on all machines with assembly.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

func thread() int { return unix.Gettid() }

// MarksItself reports whether the process sets its own limit of file locks before it runs
// anything else.
func (p *Process) MarksItself() bool { return p.memory.list != nil }

// pending is the result of a system call that has not returned.
const pending = ^uintptr(0) >> 1

func (p *Process) prepare() {
	p.pidfd = -1
	p.memory.candidates = candidates(p.program.Argv[0])
}

func candidates(name string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) { //nolint:forbidigo // as os/exec does
		// A bare name must not mean a file below the working directory.
		if filepath.IsAbs(dir) {
			list = append(list, filepath.Join(dir, name))
		}
	}
	return list
}

// clone starts the process. It must run on the Launcher's thread.
func (p *Process) clone() error {
	if !raw.Supported {
		return errNoClone
	}
	copies, err := p.write()
	defer func() {
		for _, fd := range copies {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	p.launcher.family.Lock()
	defer p.launcher.family.Unlock()
	const flags = unix.CLONE_VM | unix.CLONE_CHILD_CLEARTID | unix.CLONE_PIDFD | uintptr(unix.SIGCHLD)
	atomic.StoreUint32(&p.starting, 1)
	all := ^uint64(0)
	// Signals are blocked: the process has no stack for a handler.
	rtSigprocmask(&all, &p.memory.mask)
	pid := raw.Clone(flags, &p.pidfd, &p.starting, p.memory.list)
	rtSigprocmask(&p.memory.mask, nil)
	runtime.KeepAlive(p)
	switch {
	case pid > 0:
		p.PID = pid
		p.launcher.started[pid] = true
		return nil
	case pid == -int(syscall.EAGAIN), pid == -int(syscall.ENOMEM), pid == -int(syscall.EMFILE), pid == -int(syscall.ENFILE):
		return &Error{Op: "clone", Path: p.program.Argv[0], Err: syscall.Errno(-pid)}
	default: // an emulator, or a system call filter
		p.memory.list, p.starting = nil, 0
		return errNoClone
	}
}

// write writes the list. The caller closes copies once the process has its own.
func (p *Process) write() (copies []int, err error) {
	m := &p.memory
	argv, envp, paths, dir := m.strings(p.program)
	files := len(p.program.Files)
	m.list = make([]raw.Op, 0, 80+files+len(paths))
	op := func(check uintptr, number uintptr, args ...uintptr) {
		o := raw.Op{Number: number, Check: check, Result: pending}
		copy(o.Args[:], args)
		m.list = append(m.list, o)
	}
	op(raw.NoError, unix.SYS_SETSID)
	op(raw.NoError, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	if p.program.Locks != 0 && syscall.Getrlimit(unix.RLIMIT_LOCKS, &m.locks) == nil {
		m.locks.Cur = p.program.Locks
		op(raw.Any, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_LOCKS, address(&m.locks))
	}
	// The parent may have died already.
	op(raw.Want, unix.SYS_GETPPID)
	m.list[len(m.list)-1].Want = uintptr(os.Getpid())
	for sig := uintptr(1); sig <= 64; sig++ {
		if caught(sig) {
			op(raw.NoError, unix.SYS_RT_SIGACTION, sig, address(&m.dfl), 0, unsafe.Sizeof(m.dfl.mask))
		}
	}
	for i, f := range p.program.Files {
		fd := f.Fd()
		if fd < uintptr(files) { // or a later file would replace it
			number, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, files)
			if err != nil {
				return copies, &Error{Op: "clone", Path: p.program.Argv[0], Err: err}
			}
			copies = append(copies, number)
			fd = uintptr(number)
		}
		op(raw.NoError, unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	// Close all others now: a start that hangs would keep other programs' pipes open. Kernels
	// before 5.9 cannot; there they are closed when the program begins.
	op(raw.Any, unix.SYS_CLOSE_RANGE, uintptr(files), uintptr(^uint32(0)), 0)
	if m.limit = startLimit(); m.limit.Max != 0 {
		op(raw.Any, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, address(&m.limit))
	}
	// From here on signals other than SIGKILL can end it.
	op(raw.NoError, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(&m.mask), 0, unsafe.Sizeof(m.mask))
	if m.chdir = -1; dir != 0 {
		m.chdir = len(m.list)
		op(raw.NoError, unix.SYS_CHDIR, dir)
	}
	m.exec = len(m.list)
	for _, path := range paths {
		op(raw.Absent, unix.SYS_EXECVE, path, argv, envp)
	}
	op(raw.Any, unix.SYS_EXIT_GROUP, 127)
	return copies, nil
}

// strings writes the program's strings and returns their addresses; dir is 0 without a Dir.
func (m *memory) strings(program Program) (argv, envp uintptr, paths []uintptr, dir uintptr) {
	env := unique(program.Env)
	size := len(program.Dir) + 1
	for _, list := range [][]string{m.candidates, program.Argv, env} {
		for _, text := range list {
			size += len(text) + 1
		}
	}
	m.text = make([]byte, 0, size) // exact, so that it never moves
	add := func(text string) uintptr {
		at := len(m.text)
		m.text = append(append(m.text, text...), 0)
		return address(&m.text[at])
	}
	m.vectors = make([]uintptr, 0, len(program.Argv)+len(env)+2)
	vector := func(list []string) uintptr {
		at := len(m.vectors)
		for _, text := range list {
			m.vectors = append(m.vectors, add(text))
		}
		m.vectors = append(m.vectors, 0)
		return address(&m.vectors[at])
	}
	argv, envp = vector(program.Argv), vector(env)
	for _, path := range m.candidates {
		paths = append(paths, add(path))
	}
	if program.Dir != "" {
		dir = add(program.Dir)
	}
	return argv, envp, paths, dir
}

// address returns the address of something in the heap, where nothing moves.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func caught(sig uintptr) bool {
	var now sigaction
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(now.mask), 0, 0)
	const ignored = 1
	return errno == 0 && now.handler > ignored
}

func rtSigprocmask(set, old *uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*set), 0, 0)
}

// startLimit returns the limit on open files for programs, if it differs from this process's: at
// start, Go raises its own to one below the hard limit.
func startLimit() syscall.Rlimit {
	soft, hard := raw.NoFile()
	var now syscall.Rlimit
	if hard < 2 || soft >= hard-1 || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now) != nil || now.Cur != hard-1 || now.Max != hard {
		return syscall.Rlimit{}
	}
	return syscall.Rlimit{Cur: soft, Max: hard}
}
