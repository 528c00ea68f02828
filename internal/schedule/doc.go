// Package schedule defines jobs that run again and again: what a schedule enqueues, and when
// it ticks. It is pure: package runner, below, enqueues the jobs.
//
// definition.go is one schedule as it was written, parse.go reads its times, next.go computes
// them, with daylight saving time as people expect it, due.go returns what is to be done
// after a while without a look, stored.go reads the schedules that resque-scheduler keeps in
// Redis.
package schedule
