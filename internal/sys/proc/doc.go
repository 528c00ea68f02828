// Package proc starts and watches worker processes, and defines what a master and its worker
// processes say to each other.
//
// spawn.go and conn.go are the master's side of a new process, inherit.go and title.go the
// worker's, message.go their messages. identity.go names a process for ever. sweep.go kills what
// a worker process has started, with package procfs. pidfile.go prevents a second master;
// beside.go starts a replacement for this one.
package proc
