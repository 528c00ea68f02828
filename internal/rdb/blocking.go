package rdb

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// blockingReads is a hook that makes connections over TCP and unix sockets blocking ones.
//
// A read of Go's own tries, waits in epoll and tries again, and while it waits the whole
// program counts as idle: each answer wakes the runtime's monitor, too. For a program that
// does nothing but wait this is a third of what an exchange costs it.
type blockingReads struct{}

// DialHook makes a new connection a blocking one.
func (blockingReads) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		measured, ok := conn.(*measuredConn)
		if !ok {
			return conn, nil
		}
		switch measured.Conn.(type) {
		case *net.TCPConn, *net.UnixConn:
			if measured.Conn, err = blocking(measured.Conn); err != nil {
				return nil, &net.OpError{Op: "dial", Net: network, Err: err}
			}
		}
		return measured, nil // TLS reads ahead, and has a timer of its own
	}
}

// ProcessHook is nothing.
func (blockingReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook is nothing.
func (blockingReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
