package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/control"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/systemd"
)

// A daemon with several stores is a master for each of them, and this process above them. It is
// to a master what a service manager is to a daemon: it starts it, passes on signals, listens on
// the socket that NOTIFY_SOCKET names, and starts it again if it dies. It connects to no Redis
// and holds nothing that a job depends on. docs/decisions/stores.md says why.
//
// This file is its loop; stores_master.go a master as it sees it; stores_reload.go a new
// configuration, a new version, and what it answers; stores_child.go the master's side.

const (
	// storeFirstDelay and storeLongestDelay are how long a master that has died waits for its
	// next start.
	storeFirstDelay   = time.Second
	storeLongestDelay = 30 * time.Second
	// storeSpeaks is after which time a master gets signals although it has not said a word.
	storeSpeaks = 10 * time.Second
	// storesTell bounds how often the status is told.
	storesTell = time.Second
	// storesLate is how late the loop may be. If it is later, this process stood still.
	storesLate = time.Second
)

// StorePlan is what the process above the masters knows of a store.
type StorePlan struct {
	Name string `json:"name"`
	// Place differs between two servers or namespaces: a master does not change from one to
	// another.
	Place string `json:"place"`
}

// Stores runs a master for each of several stores. Set the fields, then call Run.
type Stores struct {
	Version string
	Log     *zap.Logger
	// Signals is the channel of Listen.
	Signals <-chan os.Signal
	// Invocation is how a master is started, but for the flags that say which one.
	Invocation proc.Invocation
	// ControlSocket is that of the configuration.
	ControlSocket string
	// First are the stores at the start; Plan reads the configuration again.
	First []StorePlan
	Plan  func(ctx context.Context) ([]StorePlan, error)
	// UntilEmpty: a master that leaves by itself has nothing to do any more.
	UntilEmpty bool

	notifier *systemd.Notifier
	dir      string // of the sockets
	env      []string
	masters  []*storeMaster
	serial   int

	state    signals.State
	readied  bool
	paused   bool
	kills    int       // TERMs, but for those that come within a second
	killedAt time.Time // when the last of them came
	failed   error     // what Run returns
	told     string
	toldAt   time.Time
	pingedAt time.Time

	notes    chan storeNote
	exits    chan storeExit
	requests chan storeRequest
	planned  chan storePlanned
	reread   storeReread
	wake     time.Time
	now      time.Time
}

// Run starts the masters and returns when all have ended.
func (s *Stores) Run(ctx context.Context) error {
	s.notifier = systemd.New(systemd.Config{
		Socket: os.Getenv("NOTIFY_SOCKET"), WatchdogUSec: os.Getenv("WATCHDOG_USEC"), WatchdogPID: os.Getenv("WATCHDOG_PID"),
	}, s.Log)
	s.state = signals.Starting
	s.notes, s.exits = make(chan storeNote, 64), make(chan storeExit, 16)
	s.requests, s.planned = make(chan storeRequest), make(chan storePlanned, 1)
	var err error
	if s.dir, err = ControlPlaces().Below(os.Getpid()); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.dir) }()
	for _, v := range s.Invocation.Env {
		if name, _, _ := strings.Cut(v, "="); name != "NOTIFY_SOCKET" && name != "WATCHDOG_PID" && name != supervisorVariable {
			s.env = append(s.env, v)
		}
	}
	s.env = append(s.env, supervisorVariable+"="+strconv.Itoa(os.Getpid()))
	answers := &storesControl{stores: s}
	if s.ControlSocket != NoControl {
		answers.listen()
	}
	defer answers.close()
	proc.SetTitle(proc.TitleOf + "stores: starting")
	for _, p := range s.First {
		if err := s.add(p); err != nil {
			s.fail(err)
			break
		}
	}
	s.loop(ctx)
	s.answerAll(control.Reply{Text: "the daemon has ended"})
	s.notifier.Status("gone")
	return s.failed
}

func (s *Stores) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	strays := procfs.Strays{}
	ended := ctx.Done()
	for {
		s.turn()
		if len(s.masters) == 0 {
			return
		}
		timer.Reset(time.Until(s.wake))
		select {
		case sig := <-s.Signals:
			if sig == syscall.SIGCHLD {
				strays.Reap() // orphans, where this is the first process of a container
				continue
			}
			s.onSignal(sig)
		case n := <-s.notes:
			s.noted(n)
		case e := <-s.exits:
			s.exited(e)
		case r := <-s.requests:
			s.requested(r)
		case p := <-s.planned:
			s.onPlan(ctx, p)
		case <-timer.C:
		case <-ended:
			ended = nil
			s.onSignal(syscall.SIGTERM)
		}
	}
}

// due reports whether t has come. If not, the loop wakes up then at the latest. The zero time
// never comes.
func (s *Stores) due(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	if !t.After(s.now) {
		return true
	}
	if t.Before(s.wake) {
		s.wake = t
	}
	return false
}

// turn does everything that is due.
func (s *Stores) turn() {
	late := !s.wake.IsZero() && time.Since(s.wake) > storesLate
	s.now = time.Now()
	s.wake = s.now.Add(time.Hour)
	for _, m := range slices.Clone(s.masters) {
		if late && !m.pinged.IsZero() {
			m.pinged = s.now // its signs of life may have been missed, or it stood still, too
		}
		switch {
		case len(m.pids) == 0 && m.leaving:
			s.forget(m)
		case len(m.pids) == 0 && s.due(m.startAt):
			s.start(m)
		case len(m.wants) > 0 && s.due(m.startedAt.Add(storeSpeaks)):
			m.spoke = true
		}
		m.deliver(s.Log)
		s.watch(m)
	}
	s.tell()
}

// watch ends a master that has given no sign of life for as long as the service manager would
// allow it.
func (s *Stores) watch(m *storeMaster) {
	most := s.notifier.WatchdogInterval()
	if most > 0 && !m.pinged.IsZero() && len(m.pids) > 0 && s.due(m.pinged.Add(most)) {
		s.Log.Error("the master of a store gives no sign of life: ending it", zap.String("store", m.plan.Name), zap.Int("pid", m.pid))
		m.pinged = time.Time{}
		m.kill(syscall.SIGKILL) // one that is stopped takes no other
	}
}

// add begins to run a store.
func (s *Stores) add(p StorePlan) error {
	m, err := s.newMaster(p)
	if err != nil {
		return err
	}
	s.masters = append(s.masters, m)
	s.now = time.Now()
	s.start(m)
	return nil
}

// forget drops a store whose master has ended for good.
func (s *Stores) forget(m *storeMaster) {
	m.close()
	s.masters = slices.DeleteFunc(s.masters, func(other *storeMaster) bool { return other == m })
}

// start starts the master of a store. What does not work is tried again.
func (s *Stores) start(m *storeMaster) {
	m.startAt, m.startedAt, m.spoke, m.ready, m.status = time.Time{}, s.now, false, false, "starting"
	m.pinged = time.Time{}
	args := m.flagged(s.Invocation.Args)
	p, err := os.StartProcess(s.Invocation.Path, args, &os.ProcAttr{
		Dir: s.Invocation.Dir, Env: append(slices.Clone(s.env), "NOTIFY_SOCKET="+m.notifyPath()),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		// A group of its own: what a terminal sends to all would reach it twice.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		delay := m.delay()
		m.startAt = s.now.Add(delay)
		m.status = "its master cannot be started: " + err.Error()
		s.Log.Error("cannot start the master of a store", zap.String("store", m.plan.Name), zap.Error(err), zap.Duration("again_in", delay))
		return
	}
	s.Log.Info("master of a store started", zap.String("store", m.plan.Name), zap.Int("pid", p.Pid))
	m.main(p)
	go m.wait(p, s.exits)
	if s.paused {
		m.wants = append(m.wants, syscall.SIGUSR2)
	}
}

// leaving reports whether the daemon ends.
func (s *Stores) leaving() bool {
	return s.state == signals.Draining || s.state == signals.Killing
}

func (s *Stores) onSignal(sig os.Signal) {
	intent := signals.Of(sig)
	switch intent {
	case signals.Kill, signals.Drain:
		s.Log.Info("signal", zap.String("signal", signals.Name(sig)), zap.String("intent", string(intent)))
		if intent == signals.Kill {
			s.state = signals.Killing
			if time.Since(s.killedAt) >= signals.Again {
				s.kills, s.killedAt = s.kills+1, time.Now()
			}
		} else if s.state != signals.Killing {
			s.state = signals.Draining
		}
		s.notifier.Stopping()
		s.answerAll(control.Reply{Text: "the daemon is stopping"})
		for _, m := range s.masters {
			m.leaving = true
			m.startAt = time.Time{}
		}
	case signals.Pause:
		s.paused = !s.leaving()
	case signals.Resume:
		s.paused = false
	case signals.Reload:
		s.reload(control.Reload)
		return
	case signals.Abort:
		s.paused = false // as in each master
	default:
		return
	}
	for _, m := range s.masters {
		m.wants = append(m.wants, sig)
		if s.kills > 2 { // the second one it should have obeyed at once
			m.kill(syscall.SIGKILL)
		}
	}
}

// fail ends the daemon because of a store that cannot work at all.
func (s *Stores) fail(err error) {
	if s.failed == nil {
		s.failed = err
	}
	if s.state != signals.Killing {
		s.Log.Error("the daemon ends", zap.Error(err))
		s.onSignal(syscall.SIGTERM)
	}
}

// ErrStore is returned by Stores.Run when the master of a store has refused its configuration.
type ErrStore struct {
	Store string
	Code  int
}

// Error names the store.
func (e *ErrStore) Error() string {
	return fmt.Sprintf("store %s: its master has ended with exit code %d; its lines in the log say why", e.Store, e.Code)
}

// exited takes the end of a process of a store.
func (s *Stores) exited(e storeExit) {
	m := e.master
	delete(m.pids, e.process)
	if m.process != e.process {
		return // an older one, or one that has never been in charge
	}
	for p := range m.pids { // the one before it takes over again
		m.process, m.pid = p, p.Pid
		return
	}
	m.ready = false
	code := e.state.code()
	switch {
	case m.leaving:
		return
	case m.again:
		m.again = false
		m.startAt = time.Now()
		return
	case code == 0 && s.UntilEmpty:
		m.leaving = true
		return
	case !m.everReady && !s.readied && (code == exitConfigFile || code == ExitConfig):
		m.leaving = true
		s.fail(&ErrStore{Store: m.plan.Name, Code: code})
		return
	}
	delay := m.delay()
	m.startAt = time.Now().Add(delay)
	m.status = "its master has ended (" + e.state.String() + ")"
	s.Log.Error("the master of a store has ended", zap.String("store", m.plan.Name), zap.Int("pid", e.process.Pid),
		zap.Stringer("how", e.state), zap.Duration("again_in", delay))
}

// exitConfigFile is the exit code of a program whose configuration is wrong.
const exitConfigFile = 2

// noted takes what a master has told its service manager.
func (s *Stores) noted(n storeNote) {
	m := n.master
	m.spoke = true
	for line := range strings.SplitSeq(n.text, "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "READY":
			if !m.ready {
				m.failures = 0
			}
			m.ready, m.everReady = true, true
		case "STATUS":
			m.status = value
		case "WATCHDOG":
			m.pinged = time.Now()
		case "EXTEND_TIMEOUT_USEC":
			if usec, err := strconv.ParseInt(value, 10, 64); err == nil {
				s.notifier.ExtendTimeout(time.Duration(usec) * time.Microsecond)
			}
		case "MAINPID":
			pid, err := strconv.Atoi(value)
			if err != nil || pid == m.pid {
				continue
			}
			p, err := os.FindProcess(pid)
			if err != nil {
				s.Log.Warn("the new master of a store cannot be followed", zap.String("store", m.plan.Name), zap.Int("pid", pid), zap.Error(err))
				continue
			}
			m.main(p)
			go m.wait(p, s.exits)
		}
	}
}

// tell keeps the title and the service manager up to date.
func (s *Stores) tell() {
	if s.state == signals.Starting && s.settled() {
		s.state = signals.Running
		s.Log.Info("ready", zap.Int("pid", os.Getpid()), zap.String("stores", s.text()), zap.String("version", s.Version))
		s.readied = true
		s.notifier.Ready()
	}
	if every := s.notifier.WatchdogInterval() / 3; every > 0 && (s.pingedAt.IsZero() || s.due(s.pingedAt.Add(every))) {
		s.pingedAt = s.now
		s.notifier.Watchdog()
		s.due(s.now.Add(every))
	}
	text := s.text()
	if text == s.told {
		return
	}
	if !s.toldAt.IsZero() && !s.due(s.toldAt.Add(storesTell)) {
		return
	}
	s.told, s.toldAt = text, s.now
	proc.SetTitle(proc.TitleOf + "stores: " + text)
	s.notifier.Status(text)
}

// settled reports whether each store works, or is known to wait for its Redis while another
// one works: that one does not hold up the start.
func (s *Stores) settled() bool {
	ready := 0
	for _, m := range s.masters {
		switch {
		case m.ready:
			ready++
		case !m.away():
			return false
		}
	}
	return ready > 0
}

// text says how the stores are, the ones first that do not work.
func (s *Stores) text() string {
	var bad, good []string
	for _, m := range s.masters {
		line := m.plan.Name + ": " + m.status
		if m.ready {
			good = append(good, line)
		} else {
			bad = append(bad, line)
		}
	}
	return strings.Join(append(bad, good...), "; ")
}

// NewerPlan asks the program that is on disk now which stores there are; flag has it print them.
func NewerPlan(ctx context.Context, i proc.Invocation, flag string) ([]StorePlan, error) {
	cmd := exec.CommandContext(ctx, i.Path, append(slices.Clone(i.Args[1:]), flag)...)
	cmd.Dir = i.Dir
	for _, v := range i.Env {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(i.Path), err, strings.TrimSpace(stderr.String()))
	}
	var plans []StorePlan
	if err := json.Unmarshal(out, &plans); err != nil {
		return nil, fmt.Errorf("%s does not say which stores there are: %w", filepath.Base(i.Path), err)
	}
	return plans, nil
}

var errStopping = errors.New("the daemon is stopping")
