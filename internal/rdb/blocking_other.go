//go:build !unix

package rdb

import "net"

// blocking leaves a connection as it is.
func blocking(conn net.Conn) (net.Conn, error) { return conn, nil }
