package master

import (
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// worker is a worker process, for its master. Only the loop uses it.
type worker struct {
	proc      string
	slot      *slot
	gen       int // configuration that it was started with
	cfg       Config
	child     Child
	spawnedAt time.Time
	greeted   bool          // it said hello and was told its name and state
	told      signals.State // the last state sent to it
	readyAt   time.Time     // zero = booting
	after     *worker       // the process that must be gone before it takes jobs; nil = none
	ahead     bool          // it takes no jobs yet: its predecessor has not stopped
	suspect   *suspectRun   // nil = it works in a slot
	health    health
	leaves    replacement
	orders    killOrders
	kill      kill
	farewell  farewell
	badCounts bool // unreadable counts were logged
}

// suspectRun is the task of a worker process for one suspect, outside the slots.
type suspectRun struct {
	looked bool      // it has looked for a suspect
	tookAt time.Time // when it took one; zero = not yet
}

type health struct {
	heard     time.Time    // last sign of life
	doubted   time.Time    // when it first seemed silent; stale unless after heard
	lockEnd   time.Time    // when it must be gone if silent; zero = unknown
	beat      proc.Message // newest beat
	outage    *outage      // of Redis; nil = none
	saturated bool         // it could take no more jobs
	readyRSS  int64        // memory when ready, in bytes; 0 = unknown
	maxRSS    int64        // memory above which it wants to be replaced, in bytes
}

type replacement struct {
	stage      stage
	why        string    // why it has stopped by itself; "" = it has not
	wanted     string    // why to replace it while it takes jobs; "" = not wanted
	wantedFrom time.Time // not before then; zero = at once
	soon       bool      // it has announced that it will stop
	surplus    bool      // its slot is gone, so nothing replaces it
}

// stage is the progress of leaving a slot. It only grows.
type stage int

const (
	working stage = iota
	stopped       // it takes no more jobs
	retired       // its slot is free for another process
)

// killOrders are orders to a worker process to kill its jobs, and its answers.
type killOrders struct {
	given    int       // orders sent
	answered int       // orders for which it has named the jobs
	answerBy time.Time // when it must have answered; zero = no open order
	tokens   []string  // the jobs that it has named
}

type kill struct {
	by        time.Time // when it must be gone; zero = no limit
	sent      bool      // SIGKILL was sent
	cause     string    // why it was ended, or seems to have ended
	lapsed    bool      // it was ended because its lease in Redis was past
	endSweep  func()    // ends the sweep of its descendants; nil = none runs
	asked     bool      // it asked for its end, because jobs ignore their kill
	stuckJobs int       // how many jobs ignore it
	again     []string  // tokens of those jobs that go back to their queues
}

type farewell struct {
	said   bool
	reason string // one of the reasons of proc.Bye
}

// orderly reports whether the process has left no job behind.
func (f farewell) orderly() bool { return f.said && f.reason != proc.Untidy }

// said is a message of a worker process, or the error of reading one.
type said struct {
	worker  *worker
	message proc.Message
	err     error
}

// exited is the end of a worker process, delivered after its last message.
type exited struct {
	worker *worker
	exit   proc.Exit
}

// watch delivers the messages and the end of w.
func (m *Master) watch(w *worker) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			message, err := w.child.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			m.messages <- said{w, message, err}
			if err != nil {
				return
			}
		}
	}()
	exit := w.child.Wait()
	// Its last messages are in the socket, and a process that it forked may still hold the other
	// end.
	_ = w.child.CloseRead()
	<-read
	_ = w.child.Close()
	m.exits <- exited{w, exit}
}

// onWorkerMessage handles a message of a worker process. Unknown kinds are signs of life.
func (m *Master) onWorkerMessage(s said) {
	w := s.worker
	w.health.heard = time.Now()
	if s.err != nil {
		m.log.Error("a worker process cannot be understood", zap.String("proc", w.proc), zap.Error(s.err))
		m.kill(w, "it sent what is not a message")
		return
	}
	switch s.message.Type {
	case proc.Hello:
		m.welcome(w, s.message)
	case proc.Ready:
		w.lastsUntil(s.message.LockEnd)
		w.health.readyRSS = s.message.RSS
		m.ready(w)
	case proc.Beat:
		m.settle(w, s.message)
	case proc.Ends:
		w.leaves.soon = true
	case proc.Retires:
		m.asksToRetire(w, s.message)
	case proc.Found:
		m.found(w)
	case proc.Apart:
		m.suspected(w, s.message)
	case proc.Killing:
		w.orders.answered = max(w.orders.answered, s.message.Kills)
		w.orders.tokens = append(w.orders.tokens, s.message.Tokens...)
	case proc.Tainted:
		w.orders.tokens = append(w.orders.tokens, s.message.Tokens...)
		w.kill.asked, w.kill.stuckJobs, w.kill.again = true, s.message.Busy, s.message.Again
		m.kill(w, fmt.Sprintf("%d killed jobs do not stop: %s", s.message.Busy, s.message.Reason))
		w.kill.cause = s.message.Reason
	case proc.Happened:
		m.happened(w, s.message)
	case proc.Counted:
		m.counted(w, s.message.Sums)
	case proc.Bye:
		w.farewell = farewell{true, s.message.Reason}
		w.health.beat.Busy = 0
		w.health.beat.Done = max(w.health.beat.Done, s.message.Done)
	}
}

func (m *Master) counted(w *worker, sums []byte) {
	if m.d.History == nil {
		return
	}
	if err := m.d.History.Add(time.Now(), sums); err != nil && !w.badCounts {
		w.badCounts = true
		m.log.Warn("the counts of a worker process cannot be read; its jobs are missing in the history", zap.String("proc", w.proc), zap.Error(err))
	}
}

// welcome answers hello; from then on the worker process gets messages.
func (m *Master) welcome(w *worker, hello proc.Message) {
	if hello.Protocol != proc.Protocol {
		m.kill(w, fmt.Sprintf("it speaks protocol %d, not %d", hello.Protocol, proc.Protocol))
		return
	}
	w.greeted, w.told = true, m.stateFor(w)
	m.send(w, proc.Message{
		Type: proc.Welcome, Protocol: proc.Protocol, Proc: w.proc,
		Slot: w.slot.number, Slots: w.cfg.Slots, State: string(w.told), Alone: w.suspect != nil, Grace: w.cfg.TermTimeout,
		Lead: m.lead,
	})
}

func (m *Master) passOn(w *worker) {
	if state := m.stateFor(w); w.greeted && !w.kill.sent && state != w.told {
		w.told, w.health.beat.State = state, "" // its next beat shows its own state
		m.send(w, proc.Message{Type: proc.SetState, State: string(state)})
	}
}

func (m *Master) stateFor(w *worker) signals.State {
	switch {
	case m.leaving():
		return m.state
	case w.after != nil || w.ahead:
		return signals.Waiting
	case m.state == signals.Starting:
		return m.startAs
	default:
		return m.state
	}
}

func (m *Master) ready(w *worker) {
	if !w.readyAt.IsZero() {
		return
	}
	w.readyAt = time.Now()
	level := zap.DebugLevel // routine, after each quota
	if m.state == signals.Starting || m.roll != nil || w.slot.failures > 0 {
		level = zap.InfoLevel
	}
	m.log.Log(level, "worker process ready", zap.String("proc", w.proc), zap.Int("pid", w.child.PID()),
		zap.Int("slot", w.slot.number), zap.Duration("after", w.readyAt.Sub(w.spawnedAt)))
	m.booted(w)
	m.learn(w.readyAt.Sub(w.spawnedAt))
	if w.slot.next == w && !w.ahead {
		m.succeed(w.slot)
	}
	m.proven(w)
	if m.state == signals.Starting {
		m.started()
	}
}

// settle handles a beat. It may prove that the end of each killed job is recorded; jobs taken
// later do not count.
func (m *Master) settle(w *worker, beat proc.Message) {
	w.health.beat, w.health.outage = beat, nil
	if beat.Away > 0 {
		w.health.outage = &outage{m.now.Add(-beat.Away), store.Trouble{Refused: beat.Refused, Text: beat.Trouble}}
	}
	m.reweigh(w, beat.RSS)
	w.lastsUntil(beat.LockEnd)
	w.health.saturated = beat.Full || beat.Busy >= w.cfg.Threads
	if beat.Kills >= w.orders.given && beat.Doomed == 0 && !w.kill.asked {
		w.orders.answerBy = time.Time{}
		w.orders.tokens = nil
	}
}

// lastsUntil notes how long the locks of w are safe, by the boot clock.
func (w *worker) lastsUntil(end time.Duration) {
	if end > 0 {
		w.health.lockEnd = time.Now().Add(end - procfs.BootTime())
	}
}

// asksToRetire handles that w wants to be replaced. For quota, or if jobs ignore their kill, it
// takes no more jobs; for age and memory it works until its master replaces it.
func (m *Master) asksToRetire(w *worker, asks proc.Message) {
	switch asks.Reason {
	case "memory":
		w.leaves.wanted = asks.Reason
		m.tooLarge(w, asks)
		return
	case "age":
		w.leaves.wanted = asks.Reason
	default:
		w.leaves.stage, w.leaves.why = max(w.leaves.stage, stopped), asks.Reason
	}
	m.log.Debug("worker process wants to be replaced", zap.String("proc", w.proc), zap.String("reason", asks.Reason))
}

// retire tells w to finish and leave; its slot is free.
func (m *Master) retire(w *worker, reason string) {
	if reason == "" {
		reason = "replaced"
	}
	w.leaves.stage = retired
	m.send(w, proc.Message{Type: proc.Retire, Reason: reason})
}

// send sends a message; a worker process that does not read is ended.
func (m *Master) send(w *worker, message proc.Message) {
	err := w.child.Send(message)
	switch {
	case err == nil:
	case errors.Is(err, proc.ErrFull):
		m.kill(w, "it does not read its messages")
	default:
		// It is gone, and its exit follows.
		m.log.Debug("message not sent", zap.String("proc", w.proc), zap.Error(err))
	}
}

func (m *Master) kill(w *worker, why string) {
	if w.kill.sent {
		return
	}
	w.kill.sent, w.kill.cause = true, why
	// First: locks depend on it.
	err := w.child.Kill()
	m.sweepKilled(w)       // only now: from here on it starts nothing more
	level := zap.InfoLevel // its end is logged as a warning with the reason
	if err != nil {
		level = zap.WarnLevel
	}
	m.log.Log(level, "killing a worker process", zap.String("proc", w.proc), zap.Int("pid", w.child.PID()), zap.String("because", why), zap.Error(err))
}
