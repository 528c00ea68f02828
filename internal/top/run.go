package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/view"
)

// Options are those of Run.
type Options struct {
	In, Out *os.File
	Source  Source
	Model   *Model
	// First is the first snapshot.
	First *view.Snapshot
	// Describe says in one line what is wrong.
	Describe func(err error) string
}

// loop is a run of top. One goroutine owns it; others look, act and read keys for it.
type loop struct {
	Options
	terminal *terminal
	pace     pace
	timer    *time.Timer
	looking  bool
	again    bool // look again as soon as that is over

	signals chan os.Signal

	keys   chan []Key
	seen   chan look
	said   chan answer
	broken chan string
}

// look is what came of a snapshot.
type look struct {
	snap *view.Snapshot
	err  error
}

// answer is what came of a command.
type answer struct {
	text string
	err  error
}

// Run shows the model until q, ^C, SIGTERM or the end of the terminal, and follows the source. It
// gives the terminal back as it was whatever happens.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		Options: o, pace: pace{every: o.Model.Every}, signals: make(chan os.Signal, 16),
		keys: make(chan []Key), seen: make(chan look, 1), said: make(chan answer, 16), broken: make(chan string, 1),
	}
	l.listen()
	defer signal.Stop(l.signals)
	if l.terminal, err = newTerminal(o.In, o.Out); err != nil {
		return err
	}
	defer l.terminal.leave()
	l.timer = time.NewTimer(l.take(look{snap: o.First}))
	defer l.timer.Stop()
	l.spawn(func() { l.read(ctx) })
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		if err := l.draw(); err != nil {
			return nilIfGone(err)
		}
		select {
		case keys, ok := <-l.keys:
			if !ok {
				return nil
			}
			for _, k := range keys {
				if l.do(ctx, l.Model.Press(k)) {
					return nil
				}
			}
		case s := <-l.signals:
			if l.signal(s) {
				return nil
			}
		case seen := <-l.seen:
			l.looking = false
			l.timer.Reset(l.take(seen))
			if l.again {
				l.look(ctx)
			}
		case said := <-l.said:
			if said.err != nil {
				l.Model.Say(l.Describe(said.err), true)
			} else {
				l.Model.Say(said.text, false)
			}
			l.follow(ctx)
		case <-l.timer.C:
			l.follow(ctx)
		case text := <-l.broken:
			panic(text)
		case <-clock.C: // the header tells the time
		case <-ctx.Done():
			return nil
		}
	}
}

// nilIfGone returns nil of an error that says that the terminal has gone.
func nilIfGone(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// draw shows the model.
func (l *loop) draw() error {
	width, height := l.terminal.size()
	return l.terminal.draw(l.Model.Render(width, height, time.Now()), width, height)
}

// spawn runs a function in a goroutine. Its panic is that of the loop, which gives the terminal
// back first.
func (l *loop) spawn(do func()) {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				select {
				case l.broken <- fmt.Sprintf("%v\n\n%s", r, debug.Stack()):
				default:
				}
			}
		}()
		do()
	}()
}

// read reads keys until the terminal has gone. It stays in the read of the next key when the loop
// ends, as the program does.
func (l *loop) read(ctx context.Context) {
	defer close(l.keys)
	var rest []byte
	buf := make([]byte, 1024)
	for {
		n, err := l.In.Read(buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		var keys []Key
		keys, rest = ParseKeys(append(rest, buf[:n]...))
		if len(keys) > 0 {
			select {
			case l.keys <- keys:
			case <-ctx.Done():
				return
			}
		}
		if err != nil || n == 0 && errors.Is(err, io.EOF) {
			return
		}
	}
}

// follow takes a snapshot unless what is shown is frozen.
func (l *loop) follow(ctx context.Context) {
	if !l.Model.Frozen() {
		l.look(ctx)
	}
}

// look takes a snapshot beside the loop, one at a time.
func (l *loop) look(ctx context.Context) {
	if l.again = l.looking; l.looking {
		return
	}
	l.looking = true
	l.Model.Asked(time.Now())
	l.timer.Stop()
	l.spawn(func() {
		snap, err := l.Source.Snap(ctx)
		l.seen <- look{snap, err}
	})
}

// take shows what came of a snapshot, and returns when the next is due.
func (l *loop) take(seen look) time.Duration {
	if seen.err != nil {
		l.Model.Away(l.Describe(seen.err), time.Now())
		return max(l.pace.every, time.Second)
	}
	next := l.pace.next(seen.snap.Took)
	slowed := time.Duration(0)
	if next > l.pace.every {
		slowed = next
	}
	l.Model.Take(seen.snap, slowed)
	return next
}

// do does what a key asks for, and reports whether that is the end.
func (l *loop) do(ctx context.Context, c Command) (end bool) {
	switch c.Kind {
	case Quit:
		return true
	case Suspend:
		return l.suspend()
	case Redraw:
		l.terminal.drawn = nil
	case Look:
		l.look(ctx)
	case Pause:
		l.act(func() (string, error) { return l.Source.Pause(ctx, c.Queue, c.On) })
	case Kill:
		l.act(func() (string, error) { return l.Source.Kill(ctx, c.Job) })
	}
	return false
}

// act changes something beside the loop.
func (l *loop) act(do func() (string, error)) {
	l.spawn(func() {
		text, err := do()
		l.said <- answer{text, err}
	})
}
