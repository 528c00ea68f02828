package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/memfile"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// oomScore makes the kernel choose worker processes before their master when
// memory runs out: a master is not replaced as fast as it replaces a worker.
const oomScore = "500"

// lockMainThread keeps the main goroutine on the main thread.
func lockMainThread() { runtime.LockOSThread() }

// IsWorker reports whether a master started this process as a worker process.
func IsWorker() bool { return os.Getenv(procfs.RoleEnv) == procfs.WorkerRole }

// Inherit takes over, in a worker process, what its master handed it: the
// control socket and the configuration. Call it once, from the main goroutine,
// after signal handling is installed and before anything is started. The main
// goroutine is free to move between threads afterwards.
func Inherit() (*Conn, []byte, error) {
	if !IsWorker() {
		return nil, nil, errors.New("inherit: not started by a resqued master")
	}
	// Commands and helpers that this process starts are not workers.
	if err := os.Unsetenv(procfs.RoleEnv); err != nil {
		return nil, nil, fmt.Errorf("inherit: %w", err)
	}
	unix.CloseOnExec(connFD)
	unix.CloseOnExec(configFD)
	config, err := inheritConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("inherit: configuration on file descriptor %d: %w", configFD, err)
	}
	conn, err := inheritConn()
	if err != nil {
		return nil, nil, fmt.Errorf("inherit: control socket on file descriptor %d: %w", connFD, err)
	}
	// Not allowed where the unit limits locks. Then what this process starts is known by its
	// environment and its parents alone.
	_ = mark.Set(os.Getpid(), mark.Worker(os.Getenv(procfs.ProcEnv)))
	// Best effort: not allowed everywhere, and nothing depends on it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0o600)
	setComm()
	runtime.UnlockOSThread()
	return conn, config, nil
}

func inheritConfig() ([]byte, error) {
	f := os.NewFile(configFD, "resqued-config")
	defer func() { _ = f.Close() }()
	config, err := memfile.ReadSealed(f)
	if errors.Is(err, memfile.ErrUnsealed) {
		err = errors.New("not the sealed memory file of a master")
	}
	return config, err
}

func inheritConn() (*Conn, error) {
	kind, err := unix.GetsockoptInt(connFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != packets {
		return nil, errors.New("not the socket of a master")
	}
	if err := unix.SetNonblock(connFD, true); err != nil {
		return nil, err
	}
	return newConn(connFD, kind, "control socket of worker")
}
