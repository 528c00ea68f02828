package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// maxNote bounds one message to a service manager, in bytes.
const maxNote = 64 << 10

// waitsForRedis begins the status of a master whose Redis has not answered yet.
const waitsForRedis = "waiting for redis"

// storeMaster is the master of a store as the process above sees it. The loop of Stores alone
// touches it.
type storeMaster struct {
	plan StorePlan
	base string // of its sockets
	conn *net.UnixConn
	done chan struct{}

	// process is the one in charge; pids are all that have been and live.
	process *os.Process
	pid     int
	pids    map[*os.Process]bool

	startedAt time.Time
	startAt   time.Time // when the next one is started; zero: not at all
	failures  int
	spoke     bool // it has said something, and so receives signals
	ready     bool
	everReady bool
	status    string
	pinged    time.Time
	wants     []os.Signal // not delivered yet
	leaving   bool        // it ends for good
	again     bool        // it ends to be started again
}

// storeNote is a message of a master to its service manager.
type storeNote struct {
	master *storeMaster
	text   string
}

// storeExit is the end of a process of a store.
type storeExit struct {
	master  *storeMaster
	process *os.Process
	state   exitState
}

// exitState is how a process has ended, as far as it is known.
type exitState struct{ *os.ProcessState }

// code is the exit code, -1 if it is not known or a signal has ended the process.
func (e exitState) code() int {
	if e.ProcessState == nil {
		return -1
	}
	return e.ExitCode()
}

// String says it in words.
func (e exitState) String() string {
	if e.ProcessState == nil {
		return "how is not known"
	}
	return e.ProcessState.String()
}

// newMaster opens the socket on which the master of a store speaks.
func (s *Stores) newMaster(p StorePlan) (*storeMaster, error) {
	s.serial++
	m := &storeMaster{
		plan: p, base: filepath.Join(s.dir, p.Name+"."+strconv.Itoa(s.serial)), pids: map[*os.Process]bool{}, done: make(chan struct{}), status: "starting",
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.notifyPath(), Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("store %s: the socket of its master cannot be made; XDG_RUNTIME_DIR, or TMPDIR, has to name a directory with a short path: %s",
			p.Name, err.Error())
	}
	m.conn = conn
	go m.listen(s.notes)
	return m, nil
}

func (m *storeMaster) notifyPath() string  { return m.base + ".notify" }
func (m *storeMaster) controlPath() string { return m.base + ".sock" }

// flagged returns the arguments of a master: those of this program, and which store it is.
func (m *storeMaster) flagged(args []string) []string {
	args = slices.Clone(args)
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return append(args, "--store="+m.plan.Name, "--control-socket="+m.controlPath(), "--pidfile=")
}

// listen delivers what the master says until the socket is closed.
func (m *storeMaster) listen(notes chan<- storeNote) {
	buf := make([]byte, maxNote)
	for {
		n, err := m.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-m.done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case notes <- storeNote{m, string(buf[:n])}:
		case <-m.done:
			return
		}
	}
}

func (m *storeMaster) close() {
	close(m.done)
	_ = m.conn.Close()
	_ = os.Remove(m.notifyPath())
}

// main puts a process in charge of the store.
func (m *storeMaster) main(p *os.Process) {
	m.process, m.pid = p, p.Pid
	m.pids[p] = true
}

// wait delivers the end of a process. One that is no child any more has ended before.
func (m *storeMaster) wait(p *os.Process, exits chan<- storeExit) {
	state, _ := p.Wait()
	exits <- storeExit{m, p, exitState{state}}
}

// deliver sends what the master is to receive, once it can.
func (m *storeMaster) deliver(log *zap.Logger) {
	if len(m.pids) == 0 {
		m.wants = nil
		return
	}
	if !m.spoke {
		return
	}
	for _, sig := range m.wants {
		if err := m.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			log.Warn("signal not delivered", zap.String("store", m.plan.Name), zap.Int("pid", m.pid), zap.Error(err))
		}
	}
	m.wants = nil
}

func (m *storeMaster) kill(sig syscall.Signal) {
	if m.process != nil {
		_ = m.process.Signal(sig)
	}
}

// away reports whether the master waits for its Redis.
func (m *storeMaster) away() bool { return strings.HasPrefix(m.status, waitsForRedis) }

// delay is how long the next start waits.
func (m *storeMaster) delay() time.Duration {
	d := min(storeFirstDelay<<min(m.failures, 10), storeLongestDelay)
	m.failures++
	return d
}
