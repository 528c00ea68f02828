package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	// webAgain is the first pause before a dead dashboard restarts, webAgainMost the longest. A
	// dashboard that has lived for webLived starts over with webAgain.
	webAgain, webAgainMost, webLived = 200 * time.Millisecond, 10 * time.Second, 30 * time.Second
	// webParting is how long its last requests may take when "resqued dev" ends.
	webParting = 3 * time.Second
)

// devWeb is the dashboard of "resqued dev": a process that ends with this one, however that ends,
// and is restarted if it dies. Its socket stays open.
type devWeb struct {
	d      *devRun
	log    *zap.Logger
	listen *os.File
	ended  chan struct{}
	cancel context.CancelFunc
}

// startWeb starts the dashboard at an address, or at a free one if that is taken and not
// requested.
func (d *devRun) startWeb(address string, asked bool, log *zap.Logger) (*devWeb, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && !asked {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, usage("Name another address, or leave the dashboard out: --no-web", "--web-listen %s: %s", address, err)
	}
	defer func() { _ = l.Close() }()
	if !local(l.Addr()) {
		return nil, usage("To show it to others: "+invocation(d.cli.name)+" web "+devFlags(d.cli.loaded)+" --listen …, with a login", "--web-listen %s: others reach that address", address)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &devWeb{d: d, log: log, listen: f, ended: make(chan struct{}), cancel: cancel}
	go w.run(ctx)
	d.say("dashboard", "http://"+l.Addr().String()+"/", map[string]any{"url": "http://" + l.Addr().String() + "/"})
	return w, nil
}

func (w *devWeb) stop() {
	w.cancel()
	<-w.ended
	_ = w.listen.Close()
}

func (w *devWeb) run(ctx context.Context) {
	defer close(w.ended)
	for pause := webAgain; ; pause = min(2*pause, webAgainMost) {
		begun := time.Now()
		err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > webLived {
			pause = webAgain
		}
		w.log.Warn("the dashboard has ended and is started again", zap.Duration("after", pause), zap.Error(err))
		if nap(ctx, pause) != nil {
			return
		}
	}
}

func (w *devWeb) once(ctx context.Context) error {
	program := "/proc/self/exe" // works after "go run" has removed the file
	if runtime.GOOS != "linux" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	args := []string{"web", "--dev", "--operator", "--while-stdin", "--listen", "fd:3", "--tokens", "", "--namespace", w.d.config.Namespace}
	if file := w.d.cli.loaded.File; file != "" {
		args = append(args, "--config", file)
	} else {
		args = append(args, "--config", "none")
	}
	c := exec.Command(program, args...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), devRedisVariable+"="+w.d.redis.URL)
	if !w.d.cli.flags.verbose {
		c.Env = append(c.Env, "RESQUED_LOG_LEVEL=error")
	}
	c.Env = append(c.Env, "RESQUED_LOG_FORMAT=text")
	c.Stderr, c.ExtraFiles = os.Stderr, []*os.File{w.listen}
	// The terminal's ^C must not end it: it shows how the jobs end.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := c.StdinPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		_ = life.Close()
		return err
	}
	over := context.AfterFunc(ctx, func() { parting(life, c.Process) })
	defer over()
	return c.Wait()
}

func parting(life io.Closer, p *os.Process) {
	_ = life.Close()
	time.AfterFunc(webParting, func() { _ = p.Kill() }) // no signal once it was waited for
}
