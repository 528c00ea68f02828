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

// oomScore makes the kernel choose worker processes before their master when memory runs out: a
// worker is replaced faster than a master.
const oomScore = "500"

func lockMainThread() { runtime.LockOSThread() }

// IsWorker reports whether a master started this process as a worker process.
func IsWorker() bool { return os.Getenv(procfs.RoleEnv) == procfs.WorkerRole }

// Inherit takes over the control socket and the configuration from the master, in a worker
// process. Call it once, from the main goroutine, after signal handling is installed and before
// anything is started. Afterwards the main goroutine may move between threads.
func Inherit() (*Conn, []byte, error) {
	if !IsWorker() {
		return nil, nil, errors.New("inherit: not started by a resqued master")
	}
	// Programs started by this process are not workers.
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
	// Fails where the unit limits locks. Then only the environment and the parents identify what
	// this process starts.
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
