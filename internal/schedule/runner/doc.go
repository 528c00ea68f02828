// Package runner enqueues the jobs of schedules when they tick.
//
// Every master has a [Runner], without a leader. Each computes which ticks are due, by the
// server's clock and a record in Redis, and calls one script that enqueues their jobs. The script
// checks the record, so only one of several equal requests has an effect. A master that dies, or
// whose clock is wrong, does no harm.
//
// If daemons have different definitions of a schedule, the newest counts while a daemon that has
// it is running: each daemon renews a note in Redis.
//
// runner.go is the loop, entry.go a schedule, plan.go the set of schedules, watch.go the notes of
// daemons.
package runner
