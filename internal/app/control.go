package app

import (
	"cmp"
	"context"
	"os"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/control"
)

// NoControl is the value of control_socket for none.
const NoControl = "off"

// ControlPlaces returns where the control sockets of daemons are.
func ControlPlaces() control.Places {
	return control.Places{
		Service: os.Getenv("RUNTIME_DIRECTORY"), Runtime: os.Getenv("XDG_RUNTIME_DIR"), Temporary: os.TempDir(), System: "/run",
	}
}

// socketTaken is logged by a daemon that takes another daemon's control socket.
const socketTaken = "another daemon listens at the control socket; \"reload\" and \"upgrade\" reach this one from now on: give each its own control_socket"

// controls answers requests on a daemon's control socket. One goroutine at a time calls its
// methods; answer may be called by any.
type controls struct {
	path     string // as configured
	version  string
	store    string // the one of several stores; "" = there is one without a name
	redis    string // see RedisOf
	requests chan master.Request
	log      *zap.Logger
	servers  []*control.Server // the last one is in use
	// waits is what the daemon waits for before there is a master; nil = there is one.
	waits atomic.Pointer[string]
}

// begin creates the socket before there is a master, unless another daemon listens there: this
// one may never start to work.
func (c *controls) begin() {
	if c.path == "" || !control.Taken(c.path) {
		c.listen(true)
	}
}

// listen creates the socket, unless it exists. The daemon also works without one. first is set
// for a first start that replaces no daemon: then it warns if another daemon has the socket.
func (c *controls) listen(first bool) {
	if c.path == NoControl || len(c.servers) > 0 && c.servers[len(c.servers)-1].Current() {
		return
	}
	path := c.path
	if path == "" {
		var err error
		if path, err = ControlPlaces().Own(os.Getpid()); err != nil {
			c.complain(err)
			return
		}
	}
	if first && control.Taken(path) { // a draining daemon needs it no more
		c.log.Warn(socketTaken, zap.String("path", path))
	}
	server, err := control.Listen(path, c.answer)
	if err != nil {
		c.complain(err)
		return
	}
	c.servers = append(c.servers, server)
}

func (c *controls) complain(err error) {
	c.log.Warn("there is no control socket: \"reload\" and \"upgrade\" do not reach this daemon, HUP does", zap.Error(err))
}

func (c *controls) close() {
	for _, s := range c.servers {
		s.Close()
	}
}

// answer asks the master and waits for the outcome.
func (c *controls) answer(ctx context.Context, r control.Request) control.Reply {
	reply := control.Reply{PID: os.Getpid(), Version: c.version}
	switch r.Do {
	case control.Reload, control.Upgrade, control.Status:
	case control.Drain:
		if err := syscall.Kill(os.Getpid(), syscall.SIGQUIT); err != nil { // like the signal
			reply.Text = err.Error()
			return reply
		}
		reply.OK, reply.Text = true, "draining"
		return reply
	default:
		reply.Text = control.Unknown
		return reply
	}
	if waits := c.waits.Load(); waits != nil {
		reply.OK, reply.State, reply.Store, reply.Redis = r.Do == control.Status, string(signals.Starting), c.store, c.redis
		reply.Text = "the daemon is starting: " + *waits
		return reply
	}
	replies := make(chan control.Reply, 1)
	request := master.Request{Do: r.Do, Answer: func(reply control.Reply) { replies <- reply }}
	said := control.Reply{Text: "the daemon has ended"}
	select {
	case c.requests <- request:
		select {
		case said = <-replies:
		case <-ctx.Done():
			select {
			case said = <-replies:
			default:
			}
		}
	case <-ctx.Done():
	}
	said.PID, said.Version = cmp.Or(said.PID, reply.PID), c.version
	if r.Do == control.Status {
		said.Store, said.Redis = c.store, c.redis
	}
	return said
}
