// Package schedule runs jobs again and again: it defines schedules, computes when they
// tick, and enqueues their jobs.
//
// Every master has a [Runner], and there is no leader. Each computes by the server's clock
// which ticks are due, from a record that is kept in Redis, and asks one script to see to
// them. The script goes by the record, so that one of several equal requests has an effect.
// A master that dies, or whose clock is wrong, takes nothing with it.
//
// Where daemons have different definitions of one schedule the newest counts, as long as a
// daemon is there that has it: each notes now and then that it is.
//
// definition.go is one schedule as it was written, parse.go reads its times, next.go computes
// them, with daylight saving time as people expect it, due.go returns what is to be done
// after a while without a look, stored.go reads the schedules that resque-scheduler keeps in
// Redis. runner.go is the loop, entry.go one schedule in it, plan.go which schedules there
// are, watch.go which of them have a daemon.
package schedule
