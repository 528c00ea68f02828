// Package pgtest gives tests and measuring programs a PostgreSQL of their own: a
// fresh cluster in a temporary directory, on a unix socket, as fast as one is that
// need not survive a power cut. No server outlives its program, however that ends.
// Nothing is installed: where PostgreSQL is missing the error says what to install.
package pgtest

import (
	"context"
	"testing"
)

// Start returns a server that is stopped with the test. The test fails where
// PostgreSQL is missing.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Launch(context.WithoutCancel(tb.Context()), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}
