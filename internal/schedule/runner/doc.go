// Package runner enqueues the jobs of schedules when they tick.
//
// Every master has a [Runner], and there is no leader. Each computes by the server's clock
// which ticks are due, from a record that is kept in Redis, and asks one script to enqueue
// their jobs. The script relies on the record, so that of several equal requests only one has
// an effect. A master that dies, or whose clock is wrong, takes nothing with it.
//
// Where daemons have different definitions of one schedule the newest counts, as long as a
// daemon is there that has it: each notes now and then that it is.
//
// runner.go is the loop, entry.go one schedule in it, plan.go which schedules there are,
// watch.go which of them have a daemon.
package runner
