// Package schedule defines jobs that run again and again: what a schedule enqueues and when it
// ticks. It is pure; package runner enqueues the jobs.
package schedule
