// Package tuning fits Go's runtime to a worker process: its processors and the pace of its
// garbage collector.
package tuning
