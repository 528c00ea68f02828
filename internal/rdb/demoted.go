package rdb

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// errDemoted makes the pool close a connection instead of handing it out.
var errDemoted = errors.New("the server of this connection was not a primary any more")

// demotions is a hook that watches for the answers of a server that is not a primary any
// more. After a failover old connections lead to it for as long as they last, and only
// new ones to its successor: so each such answer ends all connections that were made
// before it, once they are idle. The library itself does so for one connection at a
// time, and neither in transactions nor for MASTERDOWN.
type demotions struct{ seen atomic.Int64 }

// watch makes a client, and the clients of its nodes, tell d of demotions.
func (d *demotions) watch(c Conn) { hook(c, d) }

// hook adds a hook to a client that has connections, or to those of all nodes.
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
	case "READONLY", "MASTERDOWN", "NOAUTH": // the last one: a new connection gives the password that is valid now
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

// ProcessHook looks at the answer of a command, and explains why there is none.
func (d *demotions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		d.note(err)
		return gaveUp(ctx, err)
	}
}

// ProcessPipelineHook looks at the answers of a pipeline: that of a transaction as a
// whole says no more than EXECABORT.
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

// watchedConn is a connection that fails the check which the pool makes before it hands
// one out, if a demotion was seen since it was made. One in use goes on to its answer.
type watchedConn struct {
	net.Conn
	demotions *demotions
	seen      int64
}

// SyscallConn is what the pool's check begins with.
func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	if c.seen != c.demotions.seen.Load() {
		return nil, errDemoted
	}
	if inner, ok := c.Conn.(syscall.Conn); ok {
		return inner.SyscallConn()
	}
	return unchecked{}, nil
}

// unchecked stands for a connection of TLS: nothing can be told from its socket.
type unchecked struct{}

func (unchecked) Control(func(fd uintptr)) error    { return nil }
func (unchecked) Read(func(fd uintptr) bool) error  { return nil }
func (unchecked) Write(func(fd uintptr) bool) error { return nil }
