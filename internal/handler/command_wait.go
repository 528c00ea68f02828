package handler

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/sys/program"
)

const (
	// pollFrom and pollTo bound the pause between two looks while something is left.
	pollFrom = time.Millisecond
	pollTo   = 50 * time.Millisecond
	// unclearFor is how long to wait for processes that may be the command's, see judge.
	unclearFor = 100 * time.Millisecond
	// slowOpening is from what age a killed command is said to have been still opening: every
	// command opens at first.
	slowOpening = time.Second
)

// process is one run of a command: its first process, the leader of a process group, and all
// descendants.
type process struct {
	runner *runner
	leader *launch.Process
	tag    string // RESQUED_JOB in their environment
	mark   mark.Mark
	// onLeaving is the signal that asks the leader to make room; 0 = none.
	onLeaving syscall.Signal
	log       *zap.Logger
	began     time.Time

	// opening is what the system was opening for the leader when told to stop.
	opening string
}

// stopped says why a command did not end by itself.
type stopped struct {
	// killed: all its processes were told to stop.
	killed bool
	// told: the leader was told that its slice is over. outOfTime: it then used up the grace.
	told, outOfTime bool
}

// wait blocks until all processes are gone. If ctx ends before the leader, they are told to
// stop. s may be nil.
//
// The leader stays a zombie until the end: meanwhile its pid and group cannot be reused, so no
// signal hits a foreign process.
func (p *process) wait(ctx context.Context, killAfter time.Duration, s *slice) (status syscall.WaitStatus, how stopped, err error) {
	pid := p.leader.PID
	p.runner.leaders.Store(pid, p.mark)
	defer p.runner.leaders.Delete(pid)

	exited := make(chan struct{})
	go func() {
		defer close(exited)
		p.leader.AwaitExit()
	}()
	var asking sync.WaitGroup
	if p.onLeaving != 0 && s == nil {
		asking.Go(func() { p.askForRoom(ctx, exited) })
	}
	if s != nil {
		how = p.tell(ctx, exited, s)
	}
	if !how.outOfTime {
		select {
		case <-exited:
		case <-ctx.Done():
			select {
			case <-exited: // it was faster
			default:
				how.killed = true
				p.stop(exited, program.Patience(ctx, killAfter))
			}
		}
	}
	// A job ends with its command: background processes go, too.
	p.leader.Signal(unix.SIGKILL)
	<-exited
	asking.Wait()
	if !p.alone() {
		p.sweep()
	}

	status, err = p.leader.Wait()
	if err == nil && status.Signaled() && p.opening != "" {
		err = &launch.Error{Op: "exec", Path: p.opening, Err: program.ErrNotBegun}
	}
	return status, how, err
}

func (p *process) complain() {
	if opening := p.leader.Opening(); opening != "" {
		p.log.Warn("a command does not begin; its job starts when the system has opened the file",
			zap.String("file", opening), zap.Int("command_pid", p.leader.PID))
	}
}

// askForRoom waits until the job should make room, and sends the leader its signal, once. A
// program would die of a signal that it does not catch, or not yet. So askForRoom waits for the
// handler, too. It returns when the leader or ctx has ended.
func (p *process) askForRoom(ctx context.Context, exited <-chan struct{}) {
	select {
	case <-exited:
		return
	case <-ctx.Done():
		return
	case <-jobctx.Leaving(ctx):
	}
	name, pid := unix.SignalName(p.onLeaving), zap.Int("command_pid", p.leader.PID)
	late := time.AfterFunc(slowToCatch, func() {
		p.log.Warn("a command does not catch the signal of on_leaving, so it is not sent; a shell in front of the program needs exec, or a trap of its own",
			zap.String("signal", name), pid)
	})
	defer late.Stop()
	pause := pollFrom
	for !p.catches() {
		next := time.NewTimer(pause)
		select {
		case <-exited:
		case <-ctx.Done():
		case <-next.C:
			pause = min(2*pause, pollTo)
			continue
		}
		next.Stop()
		return
	}
	p.log.Debug("command asked to make room", zap.String("signal", name), pid)
	// The leader is not reaped before the end of wait, so its pid cannot be reused.
	_ = unix.Kill(p.leader.PID, p.onLeaving)
}

// catches reports whether the leader has a handler for its signal. Until its exec it has this
// process's handlers.
func (p *process) catches() bool {
	if !p.leader.Begun() {
		return false
	}
	if st, err := procfs.ReadStat(p.leader.PID); err != nil || st.CodeStart == 0 {
		return false
	}
	caught, _ := procfs.Catches(p.leader.PID, p.onLeaving)
	return caught
}

// tell waits for the end of the slice and tells only the leader: what it has started for the
// current unit shall finish. It returns when the leader or ctx has ended or the grace is over.
func (p *process) tell(ctx context.Context, exited <-chan struct{}, s *slice) (how stopped) {
	select {
	case <-exited:
		return how
	case <-ctx.Done():
		return how
	case <-s.Over:
	}
	select {
	case <-exited: // it was faster
		return how
	default:
	}
	how.told = true
	p.log.Debug("command told that its slice is over", zap.Int("command_pid", p.leader.PID), zap.Duration("grace", s.Grace))
	// The leader is not reaped before the end of wait, so its pid cannot be reused.
	_ = unix.Kill(p.leader.PID, unix.SIGTERM)
	_ = unix.Kill(p.leader.PID, unix.SIGCONT) // a stopped process would not notice
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	select {
	case <-exited:
	case <-ctx.Done():
	case <-grace.C:
		select {
		case <-exited:
		default:
			how.outOfTime = true
		}
	}
	return how
}

// stop asks the group to end and returns when it has, or after killAfter.
func (p *process) stop(exited <-chan struct{}, killAfter time.Duration) {
	if time.Since(p.began) > slowOpening {
		p.opening = p.leader.Opening()
	}
	p.log.Debug("command told to stop", zap.Int("command_pid", p.leader.PID), zap.Duration("kill_after", killAfter))
	p.leader.Signal(unix.SIGTERM)
	p.leader.Signal(unix.SIGCONT) // a stopped process would not notice
	deadline := time.NewTimer(killAfter)
	defer deadline.Stop()
	select {
	case <-exited:
	case <-deadline.C:
		return
	}
	// The leader is gone; the rest of its group has the remaining time.
	pause := pollFrom
	for {
		if !p.others() {
			return
		}
		next := time.NewTimer(pause)
		select {
		case <-deadline.C:
			next.Stop()
			return
		case <-next.C:
			pause = min(2*pause, pollTo)
		}
	}
}

// others reports whether the group, whose leader has ended, may have living processes.
func (p *process) others() bool {
	found, err := procfs.Descendants(nil)
	return err != nil || slices.ContainsFunc(found, func(s procfs.Seen) bool { return s.Group == p.leader.PID })
}
