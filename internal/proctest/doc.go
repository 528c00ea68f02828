// Package proctest helps tests that deal with real processes: it waits for what
// they do, finds those that they left behind, and boots a real systemd to see
// how the daemon gets on with it.
package proctest
