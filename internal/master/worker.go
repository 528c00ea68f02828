package master

import (
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
)

// worker is a worker process as its master sees it. The loop alone touches it.
type worker struct {
	proc  string
	slot  *slot
	gen   int // the configuration that it was started with
	cfg   Config
	child Child

	spawnedAt time.Time
	greeted   bool          // it said hello, and was told its name and state
	state     signals.State // that it was told last
	readyAt   time.Time     // zero: it is booting
	heard     time.Time     // the last sign of life
	doubted   time.Time     // when it first seemed to be silent, if that is after heard
	lockEnd   time.Time     // it must be gone then if it is silent; zero: not known

	// alone: it is there for one suspect, beside the slots. looked: it has looked for
	// one, and took it at tookAt if there was any.
	alone, looked bool
	tookAt        time.Time

	// after: a worker of which this one takes the place only when it is gone.
	after *worker
	// ahead: it was started before the one whose place it takes has stopped, and waits.
	// ends: that one has said that it will stop soon. held: it has tried a new configuration, and
	// waits until that is to take effect.
	ahead, ends, held bool

	beat       proc.Message // the newest
	outage     *outage      // of Redis, as it has told last; nil: it answers
	saturated  bool         // it could take no more jobs when it last spoke of that
	stopped    bool         // it has stopped taking jobs by itself
	why        string       // why it has; empty: it has not
	wants      string       // why it should be replaced, while it goes on
	wantsAt    time.Time    // not before that; zero: now
	readyRSS   int64        // its memory when it was ready, in bytes; 0 = unknown
	maxRSS     int64        // above which it wants to be replaced
	retired    bool         // it was told to leave, its place is another's
	surplus    bool         // its slot is no more
	bye        bool         // it has left in good order
	empty      bool         // because there was nothing to do
	listed     bool         // but it is still registered
	miscounted bool         // its counts could not be read, which was logged
	untidy     bool         // it has left, and Redis has not taken all ends of its jobs

	killBy   time.Time       // it must be gone by then
	kills    int             // how often it was told to kill its jobs
	named    int             // how many of these times it has said which they were
	abortBy  time.Time       // it must have been heard of by then; zero: settled
	killed   bool            // SIGKILL was sent
	lapsed   bool            // because its lease in Redis was past
	struck   func()          // ends the sweep that goes on beside its end; nil: none
	cause    string          // why
	tainted  bool            // it cannot go on
	stubborn int             // because so many jobs do not stop
	tokens   map[string]bool // of the jobs that were to be killed, as far as it has named them
	again    map[string]bool // of those jobs for which it was ended that go back to their queues
}

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
	w.heard = time.Now()
	if s.err != nil {
		m.log.Error("a worker process cannot be understood", zap.String("proc", w.proc), zap.Error(s.err))
		m.kill(w, "it sent what is no message")
		return
	}
	switch s.message.Type {
	case proc.Hello:
		m.welcome(w, s.message)
	case proc.Ready:
		w.lastsUntil(s.message.LockEnd)
		w.readyRSS = s.message.RSS
		m.ready(w)
	case proc.Beat:
		m.settle(w, s.message)
	case proc.Ends:
		w.ends = true
	case proc.Retires:
		m.asksToRetire(w, s.message)
	case proc.Found:
		m.found(w)
	case proc.Apart:
		m.suspected(w, s.message)
	case proc.Killing:
		w.named = max(w.named, s.message.Kills)
		for _, token := range s.message.Tokens {
			w.tokens[token] = true
		}
	case proc.Tainted:
		w.tainted, w.stubborn = true, s.message.Busy
		for _, token := range s.message.Tokens {
			w.tokens[token] = true
		}
		w.again = map[string]bool{}
		for _, token := range s.message.Again {
			w.again[token] = true
		}
		m.kill(w, fmt.Sprintf("%d killed jobs do not stop: %s", s.message.Busy, s.message.Reason))
		w.cause = s.message.Reason
	case proc.Happened:
		m.happened(w, s.message)
	case proc.Counted:
		m.counted(w, s.message.Sums)
	case proc.Bye:
		w.bye, w.empty = s.message.Reason != proc.Untidy, s.message.Reason == proc.Empty
		w.listed, w.untidy = s.message.Reason == proc.Listed, s.message.Reason == proc.Untidy
		w.beat.Busy = 0
		w.beat.Done = max(w.beat.Done, s.message.Done)
	}
}

// counted takes what w has counted.
func (m *Master) counted(w *worker, sums []byte) {
	if m.d.History == nil {
		return
	}
	if err := m.d.History.Add(time.Now(), sums); err != nil && !w.miscounted {
		w.miscounted = true
		m.log.Warn("the counts of a worker process cannot be read; its jobs are missing in the history", zap.String("proc", w.proc), zap.Error(err))
	}
}

// welcome answers hello: from here on the worker process can be spoken to.
func (m *Master) welcome(w *worker, hello proc.Message) {
	if hello.Protocol != proc.Protocol {
		m.kill(w, fmt.Sprintf("it speaks protocol %d, not %d", hello.Protocol, proc.Protocol))
		return
	}
	w.greeted, w.state = true, m.stateFor(w)
	m.send(w, proc.Message{
		Type: proc.Welcome, Protocol: proc.Protocol, Proc: w.proc,
		Slot: w.slot.number, Slots: w.cfg.Slots, State: string(w.state), Alone: w.alone, Grace: w.cfg.TermTimeout,
		Lead: m.lead,
	})
}

// passOn tells w the state that it shall be in, unless it knows.
func (m *Master) passOn(w *worker) {
	if state := m.stateFor(w); w.greeted && !w.killed && state != w.state {
		w.state, w.beat.State = state, "" // its next beat says whether it obeys
		m.send(w, proc.Message{Type: proc.SetState, State: string(state)})
	}
}

// stateFor is the state that w shall be in.
func (m *Master) stateFor(w *worker) signals.State {
	switch {
	case m.leaving():
		return m.state
	case w.after != nil || w.ahead || w.held:
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
	if w.slot.next == w && !w.ahead && !w.held {
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
	w.beat, w.outage = beat, nil
	if beat.Away > 0 {
		w.outage = &outage{m.now.Add(-beat.Away), store.Trouble{Refused: beat.Refused, Text: beat.Trouble}}
	}
	m.reweigh(w, beat.RSS)
	w.lastsUntil(beat.LockEnd)
	w.saturated = beat.Full || beat.Busy >= w.cfg.Threads
	if beat.Kills >= w.kills && beat.Doomed == 0 && !w.tainted {
		w.abortBy = time.Time{}
		clear(w.tokens)
	}
}

// lastsUntil notes until when, by the boot clock, the locks of w are safe.
func (w *worker) lastsUntil(end time.Duration) {
	if end > 0 {
		w.lockEnd = time.Now().Add(end - procfs.BootTime())
	}
}

// asksToRetire: w should be replaced. Out of quota, or tainted, it takes no more
// jobs; for age and memory it goes on until its master finds the time.
func (m *Master) asksToRetire(w *worker, asks proc.Message) {
	switch asks.Reason {
	case "memory":
		w.wants = asks.Reason
		m.tooLarge(w, asks)
		return
	case "age":
		w.wants = asks.Reason
	default:
		w.stopped, w.why = true, asks.Reason
	}
	m.log.Debug("worker process wants to be replaced", zap.String("proc", w.proc), zap.String("reason", asks.Reason))
}

// retire tells w to finish and leave; its slot is another's.
func (m *Master) retire(w *worker, reason string) {
	if reason == "" {
		reason = "replaced"
	}
	w.retired = true
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
	if w.killed {
		return
	}
	w.killed, w.cause = true, why
	// Locks depend on it; everything else can wait.
	err := w.child.Kill()
	m.strike(w)            // after that: from here on it starts nothing more
	level := zap.InfoLevel // its end is warned of, with the reason
	if err != nil {
		level = zap.WarnLevel
	}
	m.log.Log(level, "killing a worker process", zap.String("proc", w.proc), zap.Int("pid", w.child.PID()), zap.String("because", why), zap.Error(err))
}
