// Package proctest helps tests of real processes: it waits for conditions, finds processes that
// were left, and boots a real systemd.
package proctest
