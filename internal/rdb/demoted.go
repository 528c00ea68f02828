package rdb

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// errDemoted makes the pool close a connection rather than hand it out.
var errDemoted = errors.New("the server of this connection was not a primary any more")

// demotions is a hook that watches for answers of a server that is no longer a primary. After a
// failover, old connections still lead to it, and only new ones to its successor: so each such
// answer closes all older connections once they are idle. The library closes only one connection
// at a time, and neither for transactions nor for MASTERDOWN.
type demotions struct{ seen atomic.Int64 }

func (d *demotions) watch(c Conn) { hook(c, d) }

// hook adds a hook to a client, or to all nodes of a cluster.
func hook(c Conn, h redis.Hook) {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(h) })
		return
	}
	c.AddHook(h)
}

func (d *demotions) note(err error) {
	if err == nil {
		return
	}
	switch Refusal(err) {
	case "READONLY", "MASTERDOWN", "NOAUTH": // after NOAUTH, a new connection sends the current password
		d.seen.Add(1)
	}
}

// DialHook notes how many demotions a new connection need not care about.
func (d *demotions) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		seen := d.seen.Load()
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, demotions: d, seen: seen}, nil
	}
}

func (d *demotions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		d.note(err)
		return gaveUp(ctx, err)
	}
}

// ProcessPipelineHook checks the answers one by one, as a transaction as a whole only says EXECABORT.
func (d *demotions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds {
			d.note(cmd.Err())
			cmd.SetErr(gaveUp(ctx, cmd.Err()))
		}
		return gaveUp(ctx, err)
	}
}

// watchedConn fails the pool's check before it is handed out if a demotion was seen after its dial.
// A connection in use still gets its answer.
type watchedConn struct {
	net.Conn
	demotions *demotions
	seen      int64
}

// SyscallConn begins the pool's check.
func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	if c.seen != c.demotions.seen.Load() {
		return nil, errDemoted
	}
	if inner, ok := c.Conn.(syscall.Conn); ok {
		return inner.SyscallConn()
	}
	return unchecked{}, nil
}

// unchecked is for TLS connections: their sockets reveal nothing.
type unchecked struct{}

func (unchecked) Control(func(fd uintptr)) error    { return nil }
func (unchecked) Read(func(fd uintptr) bool) error  { return nil }
func (unchecked) Write(func(fd uintptr) bool) error { return nil }
