// Package testlevel decides which tests run. There are four levels: unit tests, which start
// neither servers nor processes (make unit); short ones, which do, and end within a few seconds
// (make check, go test -short); those that judge a change (make test, go test); and all of them
// (make nightly).
package testlevel

import (
	"os"
	"testing"
)

// env names the level, "unit" or "nightly". The flag -short is the level after "unit".
const env = "RESQUED_TEST_LEVEL"

// Unit reports whether to run only tests that start no server and no process.
func Unit() bool { return os.Getenv(env) == "unit" }

// Integration skips the test in unit tests. A test calls it before it starts a process;
// redistest, pgtest and mysqltest call it for servers.
func Integration(tb testing.TB) {
	tb.Helper()
	if Unit() {
		tb.Skip("starts processes; make unit leaves it out")
	}
}

// Long skips the test in unit and short tests, because it works or waits for more than a few
// seconds.
func Long(tb testing.TB) {
	tb.Helper()
	if Unit() || testing.Short() {
		tb.Skip("takes long; make test runs it")
	}
}

// Nightly reports whether all tests run, including those too slow to judge each change.
func Nightly() bool { return os.Getenv(env) == "nightly" }

// Base names the commit to compare a change with; "" = the caller chooses.
func Base() string { return os.Getenv("RESQUED_TEST_BASE") }
