// Package proc starts and watches worker processes, and holds what a master and
// its worker processes say to each other.
//
// spawn.go and conn.go are the master's side of a new process, inherit.go and
// title.go the worker's own; message.go is their language. identity.go names a
// process for ever; sweep.go ends what a worker process has started, by package
// procfs. pidfile.go keeps a second master away; beside.go starts one that takes the place of
// this one.
package proc
