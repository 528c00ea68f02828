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

// worker is a worker process as its master sees it. Only the loop reads and changes it.
type worker struct {
	proc      string
	slot      *slot
	gen       int // the configuration that it was started with
	cfg       Config
	child     Child
	spawnedAt time.Time
	greeted   bool          // it said hello, and was told its name and state
	told      signals.State // the state that it was told last
	readyAt   time.Time     // zero: it is booting
	after     *worker       // the process that must be gone before it takes jobs; nil: none
	ahead     bool          // it takes no jobs yet: the process whose place it takes has not stopped
	suspect   *suspectRun   // nil: it works in a slot
	health    health
	leaves    replacement
	orders    killOrders
	kill      kill
	farewell  farewell
	badCounts bool // its counts could not be read, and the log says so
}

// suspectRun is the task of a worker process that is there for one suspect, outside the slots.
type suspectRun struct {
	looked bool      // it has looked for a suspect
	tookAt time.Time // when it took one; zero: it has none
}

// health is what a worker process has last said of itself.
type health struct {
	heard     time.Time    // the last sign of life
	doubted   time.Time    // when it first seemed to be silent; past unless it is after heard
	lockEnd   time.Time    // a silent process must be gone by then; zero: not known
	beat      proc.Message // its newest beat
	outage    *outage      // of Redis; nil: Redis answers it
	saturated bool         // it could take no more jobs
	readyRSS  int64        // its memory when it was ready, in bytes; 0 = unknown
	maxRSS    int64        // the memory above which it wants to be replaced, in bytes
}

// replacement is how far another worker process is in taking the place of this one.
type replacement struct {
	stage      stage
	why        string    // why it has stopped by itself; empty: it has not
	wanted     string    // why to replace it while it still takes jobs; empty: not wanted
	wantedFrom time.Time // not to be replaced before; zero: at once
	soon       bool      // it has said that it will stop soon
	surplus    bool      // its slot is gone, so no process takes its place
}

// stage is how far a worker process is in leaving its slot. It only grows.
type stage int

const (
	working stage = iota
	stopped       // it takes no more jobs
	retired       // its place is free for another process
)

// killOrders are the orders to a worker process to kill its jobs, and its answers.
type killOrders struct {
	given    int       // how many it was sent
	answered int       // for how many of them it has named the jobs
	answerBy time.Time // it must have answered by then; zero: none is open
	tokens   []string  // the jobs that it has named
}

// kill is how the master ends a worker process.
type kill struct {
	by        time.Time // it must be gone by then; zero: it has time
	sent      bool      // SIGKILL was sent
	cause     string    // why it was ended, or seems to have ended
	lapsed    bool      // it was ended because its lease in Redis was past
	endSweep  func()    // ends the sweep of its child processes; nil: none runs
	asked     bool      // it asked for its end, because jobs ignore their kill
	stuckJobs int       // how many jobs ignore it
	again     []string  // the tokens of those that go back to their queues
}

// farewell is what a worker process said when it left.
type farewell struct {
	said   bool
	reason string // one of the reasons of proc.Bye
}

// orderly reports whether the process has left no job behind.
func (f farewell) orderly() bool { return f.said && f.reason != proc.Untidy }

// said is a message of a worker process, or the reason that none can be read.
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

// watch delivers what w says, and its end. It ends with w.
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
	// Its last messages are in the socket. A process that it forked may still hold the other end.
	_ = w.child.CloseRead()
	<-read
	_ = w.child.Close()
	m.exits <- exited{w, exit}
}

// onWorkerMessage takes a message of a worker process. Unknown ones are signs of life.
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

// counted takes what w has counted.
func (m *Master) counted(w *worker, sums []byte) {
	if m.d.History == nil {
		return
	}
	if err := m.d.History.Add(time.Now(), sums); err != nil && !w.badCounts {
		w.badCounts = true
		m.log.Warn("the counts of a worker process cannot be read; its jobs are missing in the history", zap.String("proc", w.proc), zap.Error(err))
	}
}

// welcome answers hello: from here on the worker process can be spoken to.
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

// passOn tells w the state that it shall be in, unless it knows.
func (m *Master) passOn(w *worker) {
	if state := m.stateFor(w); w.greeted && !w.kill.sent && state != w.told {
		w.told, w.health.beat.State = state, "" // its next beat says whether it obeys
		m.send(w, proc.Message{Type: proc.SetState, State: string(state)})
	}
}

// stateFor is the state that w shall be in.
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

// ready: a worker process has begun to work.
func (m *Master) ready(w *worker) {
	if !w.readyAt.IsZero() {
		return
	}
	w.readyAt = time.Now()
	level := zap.DebugLevel // a matter of course, after each quota
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

// settle takes a beat. It may prove that the end of each killed job is recorded;
// those that the worker process has taken since are none of them.
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

// lastsUntil notes until when, by the boot clock, the locks of w are safe.
func (w *worker) lastsUntil(end time.Duration) {
	if end > 0 {
		w.health.lockEnd = time.Now().Add(end - procfs.BootTime())
	}
}

// asksToRetire: w should be replaced. Out of quota, or when jobs ignore their kill, it takes no more
// jobs; for age and memory it goes on until its master finds the time.
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

// retire tells w to finish and leave; its slot is another's.
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
		// It is gone, and its exit is on the way.
		m.log.Debug("message not sent", zap.String("proc", w.proc), zap.Error(err))
	}
}

// kill ends a worker process at once.
func (m *Master) kill(w *worker, why string) {
	if w.kill.sent {
		return
	}
	w.kill.sent, w.kill.cause = true, why
	// Locks depend on it; everything else can wait.
	err := w.child.Kill()
	m.sweepKilled(w)       // after that: from here on it starts nothing more
	level := zap.InfoLevel // its end is warned of, with the reason
	if err != nil {
		level = zap.WarnLevel
	}
	m.log.Log(level, "killing a worker process", zap.String("proc", w.proc), zap.Int("pid", w.child.PID()), zap.String("because", why), zap.Error(err))
}
