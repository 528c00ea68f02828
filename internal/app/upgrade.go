package app

import (
	"context"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/sys/proc"
)

// Elder is the master that this process was started to replace.
type Elder struct{ link *proc.Beside }

// InheritElder returns the master that this process was started to replace; nil in any other
// process. Call it once, before anything is started.
func InheritElder() (*Elder, error) {
	link, err := proc.InheritBeside()
	if link == nil {
		return nil, err
	}
	return &Elder{link}, nil
}

// PID returns the process id of that master.
func (e *Elder) PID() int { return e.link.PID() }

// Failed tells that master why this process does not replace it.
func (e *Elder) Failed(why string) {
	const most = 8 << 10
	_ = e.link.Send(proc.Message{Type: proc.Failed, Reason: why[:min(len(why), most)]})
}

// TakesOver is what a program that can replace a running daemon prints when asked.
func TakesOver() string { return proc.TakesOver }

func (d *Daemon) upgrade(inCharge func(on bool)) master.Upgrade {
	if d.Dev != nil {
		return master.Upgrade{}
	}
	u := master.Upgrade{InCharge: inCharge}
	if d.Elder != nil {
		u.Elder = d.Elder.link
	}
	if d.Invocation == nil {
		return u
	}
	u.Changed = d.Invocation.Changed
	u.Start = func(ctx context.Context) (master.Peer, error) {
		if err := d.Invocation.Probe(ctx); err != nil {
			return nil, err
		}
		link, err := d.Invocation.Start()
		if err != nil {
			return nil, err
		}
		return link, nil
	}
	return u
}

// Remember notes how this process was started. Without that, the daemon cannot be upgraded while
// it runs.
func (d *Daemon) Remember() {
	i, err := proc.Invoked()
	if err != nil {
		d.Log.Info("this daemon cannot be upgraded while it runs", zap.Error(err))
		return
	}
	d.Invocation = &i
}
