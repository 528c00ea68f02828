// Package pgtest gives tests and benchmarks a PostgreSQL of their own: a fresh cluster in a
// temporary directory, on a unix socket, with settings for speed instead of durability. No
// server outlives its program, however that ends. It installs nothing: if PostgreSQL is missing,
// the error names the packages.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// Start returns a server that is stopped after the test. The test fails if PostgreSQL is
// missing.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	testlevel.Integration(tb)
	s, err := Launch(context.WithoutCancel(tb.Context()), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Beside returns tests that run with a server, which is in *server meanwhile:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Beside(m, &server)) }
//
// They do not run if PostgreSQL is missing or at the level of unit tests.
func Beside(m *testing.M, server **Server) interface{ Run() int } {
	return beside{m: m, server: server}
}

type beside struct {
	m      *testing.M
	server **Server
}

// Run returns the exit code of the tests.
func (b beside) Run() int {
	if testlevel.Unit() {
		return 0
	}
	s, err := Launch(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Stop()
	*b.server = s
	return b.m.Run()
}
